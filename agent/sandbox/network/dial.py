"""Whether a host may be reached, and the connection to it.

The name is looked up once, here; each address that comes is judged, and the connection goes to one that was judged: a
name that answers differently the next time gains nothing.  Where the host itself needs a proxy, that one is asked for
the connection (`outer`).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from agent.config import addresses
from agent.config.proxies import in_the_way
from agent.config.reach import PORTS, in_url
from agent.errors import HostRefused, HostUnreached
from agent.sandbox.network import outer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config.addresses import Address
    from agent.config.reach import Reach

SECONDS = 20.0
"""For one connection."""

TRIES = 4
"""Addresses of one name that are tried."""


@dataclass(frozen=True, slots=True)
class Dialer:
    """`allowed` are the entries of the configuration, `key` where a person writes them, `proxies` the environment that
    names those of this host.  `look_up` is `socket.getaddrinfo`, `connect` is `socket.create_connection`."""

    allowed: Sequence[Reach]
    key: str = "sandbox.network"
    proxies: Mapping[str, str] = field(default_factory=dict)
    look_up: Callable[..., Sequence[Any]] = socket.getaddrinfo
    connect: Callable[..., socket.socket] = socket.create_connection

    def open(self, host: str, port: int, scheme: str) -> socket.socket:
        """A connection to `host`, as `reach.plain` gives it.  HostRefused when it may not be reached, HostUnreached
        when it could not be."""
        entries = self.entries(host, port)
        proxy = in_the_way(f"{scheme}://{in_url(host)}:{port}/", self.proxies)
        try:
            found = self.look_up(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if proxy is not None and outer.looks_up(proxy):
                return outer.through(proxy, host, port, self.connect, SECONDS)
            raise HostUnreached(f"{host} is not known: {getattr(error, 'strerror', None) or error}") from error
        fit = self.judged(host, [info[4][0] for info in found], entries)
        if proxy is not None:
            return outer.through(proxy, host if outer.looks_up(proxy) else str(fit[0]), port, self.connect, SECONDS)
        return self._connected(host, port, fit)

    def entries(self, host: str, port: int) -> list[Reach]:
        """The entries that let `host` be reached at `port`; HostRefused when there are none."""
        named = [entry for entry in self.allowed if entry.fits(host)]
        if not named:
            raise HostRefused(f"{host} is not in {self.key}")
        fit = [entry for entry in named if port in entry.ports]
        if not fit:
            ports = sorted({port for entry in named for port in entry.ports})
            wanted = " and ".join(map(str, ports))
            raise HostRefused(f"port {port} of {host} is not in {self.key}, only {wanted}")
        return fit

    def judged(self, host: str, found: Sequence[str], entries: Sequence[Reach]) -> list[Address]:
        """The addresses that may be connected to; HostRefused, with the first reason, when none may."""
        fit: dict[Address, None] = {}
        reasons = []
        for text in found:
            address = ip_address(text.partition("%")[0])
            if reason := self.refusal(address, entries):
                reasons.append(reason)
            else:
                fit[address] = None
        if not fit:
            raise HostRefused(f"{host} {reasons[0]}" if reasons else f"{host} has no address")
        return list(fit)[:TRIES]

    def refusal(self, address: Address, entries: Sequence[Reach]) -> str:
        """Why `address` may not be connected to, "" when it may."""
        real = addresses.meant(address)
        if word := addresses.never(real):
            return f"has the address {address} ({word})"
        if any(entry.at is not None and real in entry.at for entry in entries):
            return ""
        if word := addresses.private(real):
            return f"has the address {address} ({word}), which is reached only where an entry of {self.key} names it"
        if all(entry.at is not None for entry in entries):
            return f"has the address {address}, which is not in {', '.join(str(entry.at) for entry in entries)}"
        return f"has the address {address}, which is this machine's own" if is_own(real) else ""

    def _connected(self, host: str, port: int, fit: Sequence[Address]) -> socket.socket:
        said = ""
        for address in fit:
            try:
                return self.connect((str(address), port), SECONDS)
            except OSError as error:
                said = error.strerror or str(error)
        raise HostUnreached(f"{host}:{port} was not reached: {said}")


def is_own(address: Address) -> bool:
    """Whether a connection to `address` ends at this machine: then that is the address it would come from, too.  No
    packet is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((str(address), PORTS[0]))
            return ip_address(asked.getsockname()[0]) == address
    except OSError:
        return False
