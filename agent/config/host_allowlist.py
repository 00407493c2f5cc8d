"""Parses one entry of an allow-list of hosts: `sandbox.network`, `workspace.setup.network`.

An entry of the allow-list is a name (`pypi.org`), all names below one (`*.example.org`), all names (`*`), or an
address. In an entry, a port (`:8443`) and a network (`@10.1.2.0/24`) may follow the host; without them the ports are
443 and 80, and the host must have a public address. `host_allowlist.py` only parses entries;
`agent/sandbox/network/dial.py` applies them.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from agent.config import private_addresses
from agent.config.value_kinds import Allowed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.config.private_addresses import Network

PORTS = (443, 80)
"""The ports of an allow-list entry that names no port."""

ANY = "*"
"""The allow-list entry for every public host."""

LOOPBACK = frozenset(
    {
        *("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback", "ipv6-localhost", "ipv6-loopback"),
        *("localhost.localdomain", "localhost4.localdomain4", "localhost6.localdomain6"),
    }
)
"""Names of the loopback address: the names in RFC 6761 (with all names below `localhost`), and names in /etc/hosts of
distributions."""

_ENTRY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:@\[\]/]+)(?::([0-9]{1,5}))?(?:@([0-9A-Fa-f:.]+(?:/[0-9]{1,3})?))?")
_NAME = re.compile(r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_ALLOWED = (
    "names like pypi.org, *.example.org or *, each with :port if it is neither 443 nor 80, and with @address or "
    "@network/bits if it is in a private network"
)


class ForbiddenHost(ValueError):
    """The error for an allow-list entry with an address that is never allowed; pydantic shows the message to a
    person."""


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A parsed entry of an allow-list of hosts.

    `host` is lower-case ASCII; it is `*`, or begins with `*.`, if the entry covers many hosts. `at` is the only network
    in which the address of the host may be; None means any public address.
    """

    host: str
    ports: tuple[int, ...] = PORTS
    at: Network | None = None

    def fits(self, host: str) -> bool:
        """Whether the entry matches `host`, a name or address in the form of `normalize_host`."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return self.host in (ANY, host)


def normalize_host(host: str) -> str:
    """A host name in the form for comparisons: lower-case ASCII without a dot at the end; an IP address in its shortest
    form.

    Raises ValueError for a text that is neither a host name nor an address.
    """
    host = host.strip().removeprefix("[").removesuffix("]")
    if ":" in host:
        if "%" in host:
            raise ValueError  # an address with a zone, such as `fe80::1%eth0`, is refused
        return str(ip_address(host))
    host = host.removesuffix(".").lower()
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise ValueError
    return host


def in_url(host: str) -> str:
    """A host (in the form of `normalize_host`) as part of a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def parse(entry: str) -> AllowedHost:
    """Parse one entry of an allow-list.

    Raises ValueError for an invalid entry, ForbiddenHost for an address that is never allowed.
    """
    match = _ENTRY.fullmatch(entry.strip())
    if match is None:
        raise ValueError
    name, port, at = match.groups()
    host = name if name == ANY else normalize_host(name)
    if port is not None and not 0 < int(port) < 1 << 16:
        raise ValueError
    network = ip_network(at, strict=False) if at else None
    if network is None and is_address(host):
        network = ip_network(host)
    if word := _describe_own_name(host.removeprefix("*.")):
        raise ForbiddenHost(f"{entry!r}: {host} is {word}, which no command may reach; take the entry out")
    if network is not None and (word := private_addresses.never_reachable(network)):
        raise ForbiddenHost(f"{entry!r}: {network} is {word}, which no command may reach; take the entry out")
    return AllowedHost(host, (int(port),) if port else PORTS, network)


def parse_all(entries: Iterable[str]) -> tuple[AllowedHost, ...]:
    """Parse entries of an allow-list that were checked when the configuration was read."""
    return tuple(parse(entry) for entry in entries)


def _describe_own_name(host: str) -> str:
    """A description of a host name that always leads to this machine or to another forbidden address; "" for any other
    name.

    Resolvers accept numbers as addresses, in the forms of inet_aton(3): `127.1`, `0x7f.1`.
    """
    if host in LOOPBACK or host.endswith(".localhost"):
        return "loopback"
    if not re.fullmatch(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}", host):
        return ""
    try:
        return private_addresses.never_reachable(ip_address(socket.inet_aton(host)))
    except OSError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback address or the name `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(host: str) -> bool:
    """Whether `host` is an IP address, and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _entry(value: Any) -> Any:
    try:
        parse(value if isinstance(value, str) else "")  # a number in YAML is refused, like an empty host
    except ForbiddenHost:
        raise
    except ValueError:
        raise ValueError from None  # the message of the library is dropped, and the allowed forms are shown instead
    return value.strip()


def _switch(value: Any) -> Any:
    """In an allow-list `true` allows every public host, `false` none; an environment variable passes these words as a
    list of one text."""
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
"""The hosts that a set-up command may reach (`workspace.setup.network`, `repository_file.network`); earlier versions of
this program had only true or false."""
