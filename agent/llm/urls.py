"""Addresses of servers as people write them: with or without scheme, `/v1`, a trailing slash, a whole endpoint."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit

from agent.errors import ConfigError

KEPT = 32  # addresses whose reading is remembered: each turn asks for the same few
_VERSION = re.compile(r"/v\d+[a-z0-9]*(/|$)")
_ENDPOINTS = re.compile(r"/(chat/completions|completions|responses|messages|models|api/chat|api/generate|api/tags)$")


@lru_cache(KEPT)
def clean(base_url: str) -> str:
    """Scheme, host and path, without a trailing slash or the name of an endpoint.

    Without a scheme: http for this machine, addresses and names with a port or without a dot, else https.
    """
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
            f"llm base_url: {base_url!r} is not an address; it should look like http://localhost:1234 or "
            f"https://api.openai.com/v1"
        )
    path = _ENDPOINTS.sub("", parts.path.rstrip("/")).rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


@lru_cache(KEPT)
def versioned(base_url: str) -> str:
    """The address below which `/chat/completions` is: `/v1` is added unless the path names a version already."""
    base = clean(base_url)
    return base if _VERSION.search(urlsplit(base).path) else f"{base}/v1"


def root(base_url: str) -> str:
    """The address without a trailing `/v1` or `/api`."""
    return re.sub(r"(/api)?/(v1|v0|api)$", "", clean(base_url))


def host(base_url: str) -> str:
    """The host name, lower case; "" without an address."""
    return (urlsplit(clean(base_url)).hostname or "").lower() if base_url else ""


@lru_cache(KEPT)
def is_loopback(url: str) -> bool:
    """Whether the address is this machine; a proxy for the world must not be asked for it."""
    name = (urlsplit(url).hostname or "").lower()
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def shown(url: str) -> str:
    """The address without user, password, query: safe in a message."""
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
