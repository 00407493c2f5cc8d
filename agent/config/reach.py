"""One entry of an allow-list of hosts: `sandbox.network`, `workspace.setup.network`.

An entry is a name (`pypi.org`), every name below one (`*.example.org`), every name (`*`), or an address; then, where
they differ from what goes without saying, a port (`:8443`; else 443 and 80) and the network at which the name may be
found (`@10.1.2.0/24`; else the public one).  Read here, judged by `agent/sandbox/network/dial.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from agent.config import addresses
from agent.config.kinds import Allowed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.config.addresses import Network
    from agent.config.sections import Setup
    from agent.config.settings import Settings

PORTS = (443, 80)
"""The ports of an entry that names none."""

ANY = "*"
"""The entry of every public host."""

_ENTRY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:@\[\]/]+)(?::([0-9]{1,5}))?(?:@([0-9A-Fa-f:.]+(?:/[0-9]{1,3})?))?")
_NAME = re.compile(r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_ALLOWED = (
    "names like pypi.org, *.example.org or *, each with :port if it is neither 443 nor 80, and with @address or "
    "@network/bits if it is in a private network"
)


class Forbidden(ValueError):
    """An entry that names what nothing opens; the message is for a person.  pydantic shows what a ValueError says."""


@dataclass(frozen=True, slots=True)
class Reach:
    """`host` in small ASCII letters, `*` or beginning with `*.` for many.  `at`: the only network at which it may be
    found; None: any public address."""

    host: str
    ports: tuple[int, ...] = PORTS
    at: Network | None = None

    def fits(self, host: str) -> bool:
        """Whether the entry is about `host`, a name or address as `plain` gives it."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return self.host in (ANY, host)


def plain(host: str) -> str:
    """A name as it is compared: small ASCII letters, no dot at the end; an address in its shortest form.  ValueError
    for what is neither."""
    host = host.strip().removeprefix("[").removesuffix("]")
    if ":" in host:
        if "%" in host:
            raise ValueError  # an address of one interface
        return str(ip_address(host))
    host = host.removesuffix(".").lower()
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise ValueError
    return host


def in_url(host: str) -> str:
    """A host as `plain` gives it, the way it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def parse(entry: str) -> Reach:
    """One entry.  ValueError for one that cannot be understood, or that names what nothing opens."""
    match = _ENTRY.fullmatch(entry.strip())
    if match is None:
        raise ValueError
    name, port, at = match.groups()
    host = name if name == ANY else plain(name)
    if port is not None and not 0 < int(port) < 1 << 16:
        raise ValueError
    network = ip_network(at, strict=False) if at else None
    if network is None and _is_address(host):
        network = ip_network(host)
    if network is not None and (word := addresses.never(network)):
        raise Forbidden(f"{entry!r}: {network} is {word}, which no command may reach; take the entry out")
    return Reach(host, (int(port),) if port else PORTS, network)


def parse_all(entries: Iterable[str]) -> tuple[Reach, ...]:
    """As `parse`, of entries that were checked when the configuration was read."""
    return tuple(parse(entry) for entry in entries)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _entry(value: Any) -> Any:
    try:
        parse(value if isinstance(value, str) else "")  # a number in YAML is no host
    except Forbidden:
        raise
    except ValueError:
        raise ValueError from None  # without the words of a library: what is allowed is said instead
    return value.strip()


def _switch(value: Any) -> Any:
    """`true` is every public host, `false` none; from a variable they come as a list of one word."""
    word = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
    if isinstance(word, str):
        word = {"true": True, "false": False}.get(word.lower(), word)
    if isinstance(word, bool):
        return (ANY,) if word else ()
    return value


Entry = Annotated[str, BeforeValidator(_entry), Allowed(_ALLOWED)]
Hosts = Annotated[
    tuple[Entry, ...], BeforeValidator(_switch), Allowed(f"true (every public host), false, or a list of {_ALLOWED}")
]
"""The hosts of the set-up command, which once was true or false."""


def of_setup(settings: Settings, section: Setup) -> tuple[str, ...]:
    """The entries for `workspace.setup`: its own, then those of every command."""
    return tuple(dict.fromkeys((*section.network, *settings.sandbox.network)))
