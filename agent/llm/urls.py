"""Interprets the addresses of model servers that people configure, in which the scheme, `/v1`, a slash at the end, an
endpoint or a query may be present or missing.

The function `bases` returns the possible base URLs of an address; the client tries them in this order.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from agent.config import host_allowlist
from agent.errors import ConfigError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

# maximum number of addresses in each cache of `urls.py`; a process uses the same few addresses again and again
KEPT = 32
_VERSION = re.compile(r"/v\d[a-z0-9]*+(/|$)")
_ENDPOINTS = re.compile(
    r"/(?:chat/completions|completions|responses|messages|api/chat|api/generate|api/tags|(?<=/v1/)models)$"
)


@lru_cache(KEPT)
def clean(base_url: str) -> str:
    """The address of a model server with a scheme, without a query, and without a slash or an endpoint
    (`/chat/completions`) at its end.

    If the scheme is missing, it becomes http for an IP address, for a host name without a dot, and for a host with
    another port than 443 or 8443; otherwise https.
    """
    parts = urlsplit(_whole(base_url))
    path = _ENDPOINTS.sub("", parts.path.rstrip("/")).rstrip("/")
    return _without_query(parts, path)


def _whole(base_url: str) -> str:
    """The address `base_url`, with a scheme added if it had none.  Raises ConfigError when the text is not an
    address."""
    text = base_url.strip()
    if "://" not in text:
        text = f"{_scheme(text)}://{text}"
    parts = urlsplit(text)
    try:
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"llm base_url: {displayable(base_url)!r} is not an address; it should look like http://localhost:1234 or "
            f"https://api.openai.com/v1"
        )
    return text


def _without_query(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


@lru_cache(KEPT)
def bases(base_url: str, call: str, base_path: str = "", *, version_first: bool = False) -> tuple[str, ...]:
    """The possible base URLs, below which the endpoint `call` may be, the likeliest first; after a 404 the client tries
    the next base URL.

    If the configured address ends with `call`, the part before `call` is the only base URL; if the path of the address
    contains a version, the address is the only base URL, unless `base_path` begins with that path. If the address has
    no path, or only the beginning of `base_path` (the path of the dialect, or `/v1` if the dialect names none), the
    first base URL has the whole `base_path`. An address with any other path (`https://models.github.ai/inference`) is
    tried unchanged first and with `/v1` second; with `version_first` in the reverse order.
    """
    written = urlsplit(_whole(base_url))
    if written.path.rstrip("/").endswith(call):
        return (_without_query(written, written.path.rstrip("/").removesuffix(call)),)
    base = clean(base_url)
    path = urlsplit(base).path
    own = base_path or "/v1"
    if _VERSION.search(path) and not own.startswith(f"{path}/"):
        return (base,)
    if own.startswith(f"{path}/"):
        return (base.removesuffix(path) + own, base) if path != own else (base,)
    return (f"{base}/v1", base) if version_first else (base, f"{base}/v1")


def join(base_url: str, base: str, path: str) -> str:
    """The URL of `path` below the base URL `base`, with the query of the configured address (`?api-version=…`)."""
    query = urlsplit(_whole(base_url)).query
    return f"{base}{path}?{query}" if query else f"{base}{path}"


def root(base_url: str) -> str:
    """The address of a model server without `/v1`, `/v0` or `/api`, and without `/api/v1`, `/api/v0` or `/api/api`, at
    its end."""
    return re.sub(r"(/api)?/(v1|v0|api)$", "", clean(base_url))


def path(base_url: str) -> str:
    """The path of a model server's address, "" if the address has no path."""
    return urlsplit(clean(base_url)).path


def origin(base_url: str) -> str:
    """A model server's address without its path: scheme, host and port, with user and password if it has them."""
    return clean(base_url).removesuffix(path(base_url))


def host(base_url: str) -> str:
    """The host name in a model server's address, in lower case; "" if the address is empty."""
    return (urlsplit(clean(base_url)).hostname or "").lower() if base_url else ""


@lru_cache(KEPT)
def is_loopback(url: str) -> bool:
    """Whether the address `url` is on this machine, so that requests to it must not go through a proxy."""
    name = (urlsplit(url).hostname or "").lower()
    return host_allowlist.is_loopback(name) or name.endswith(".localhost")


def displayable(url: str) -> str:
    """The address without user, password and query, so that a message can show it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _scheme(text: str) -> str:
    netloc = text.split("/", 1)[0]
    name, _, port = netloc.rpartition("@")[2].rpartition(":")
    name = name or port
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return "http" if "." not in name or (port.isdigit() and port not in ("443", "8443")) else "https"
    return "http"
