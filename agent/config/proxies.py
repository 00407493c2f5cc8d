"""The proxy that stands between this machine and an address: which variable names it, and whether it can be used.

`requests` picks the proxy; here it is checked before it is used, and named in words for a person without its password.
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
"""What desktops write for SOCKS 5 with names that the proxy looks up."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """`variable` of the environment that names it, `address` as it is to be used."""

    variable: str
    address: str

    @property
    def shown(self) -> str:
        """The address without user and password."""
        parts = urlsplit(self.address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def words(self) -> str:
        """It, for a message."""
        return f"the proxy {self.shown} ({self.variable})"

    @property
    def advice(self) -> str:
        """What to do about it."""
        return f"check that it runs and what {self.variable} says, or name the host in NO_PROXY"


def proxy(chosen: str, scheme: str, environ: Mapping[str, str]) -> Proxy:
    """The proxy with the address that `requests` chose for addresses with this scheme.  ConfigError for one that cannot
    be used."""
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
    """The proxy by way of which git reaches an address; None for none, and for one that cannot be understood."""
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
    """The variable that says so: that of the scheme before that for all, in small letters first, as they are read."""
    names = [form for name in (f"{scheme}_proxy", "all_proxy") for form in (name, name.upper())]
    found = next(
        (name for name in names if environ.get(name, "").strip() in (chosen, chosen.removeprefix("http://"))), ""
    )
    return found or names[1]
