"""Finds the proxy for an address, the variable that configures it, and whether it is usable.

`requests` selects the proxy for its own requests, and `in_the_way` finds the one for git, and for connections of
commands in the sandbox. This module checks a proxy before it is used, and describes it for a person without its
password.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMES = ("http", "https", "socks5", "socks5h", "socks4", "socks4a")
UNCLEAR = "socks"
"""A URL scheme that desktop settings write; it is read as `socks5h`, with which the proxy resolves the host names."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """`variable` is the environment variable that configures the proxy, `address` the proxy's address."""

    variable: str
    address: str

    @property
    def shown(self) -> str:
        """The address of the proxy without user and password."""
        parts = urlsplit(self.address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def description(self) -> str:
        """A description of the proxy for error messages."""
        return f"the proxy {self.shown} ({self.variable})"

    @property
    def advice(self) -> str:
        """Advice for a person about the proxy."""
        return f"check that it runs and what {self.variable} says, or name the host in NO_PROXY"


def proxy(chosen: str, scheme: str, environ: Mapping[str, str]) -> Proxy:
    """The checked proxy with the address `chosen`, which the environment names for URLs with the scheme `scheme`.

    Raises ConfigError for an unusable address of a proxy.
    """
    variable = _variable(chosen, scheme, environ)
    address = chosen if "://" in chosen else f"http://{chosen}"
    named, _, rest = address.partition("://")
    if named.lower() == UNCLEAR:
        address = f"socks5h://{rest}"
    try:
        parts = urlsplit(address)
        good = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        shown = f"{named}://{rest.rpartition('@')[2]}"
        raise ConfigError(
            f"environment {variable}: {shown!r} is no address of a proxy; allowed is "
            f"{', '.join(f'{one}://' for one in SCHEMES)} with a host and a port"
        )
    return Proxy(variable, address)


def in_the_way(url: str, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy that git uses for the address `url`; None if there is none, or if the proxy's address is invalid."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    direct = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").lower().split(",")
    direct = [one.strip().lstrip(".") for one in direct if one.strip()]
    if parts.scheme not in ("http", "https") or any(one in ("*", host) or host.endswith(f".{one}") for one in direct):
        return None
    names = (f"{parts.scheme}_proxy", "HTTPS_PROXY" if parts.scheme == "https" else "", "all_proxy", "ALL_PROXY")
    chosen = next((environ[name] for name in names if environ.get(name)), "")
    try:
        return proxy(chosen, parts.scheme, environ) if chosen else None
    except ConfigError:
        return None


def _variable(chosen: str, scheme: str, environ: Mapping[str, str]) -> str:
    """The name of the environment variable with the proxy `chosen`; searched in the order `SCHEME_proxy`,
    `SCHEME_PROXY`, `all_proxy`, `ALL_PROXY`; `SCHEME_PROXY` if none of them has it."""
    names = [form for name in (f"{scheme}_proxy", "all_proxy") for form in (name, name.upper())]
    found = next(
        (name for name in names if environ.get(name, "").strip() in (chosen, chosen.removeprefix("http://"))), ""
    )
    return found or names[1]
