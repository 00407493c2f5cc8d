"""Decides whether a host may be reached, and opens the connection to it.

For each connection the name of the host is resolved once, in this module. Each resolved address is checked, and a
direct connection goes to a checked address, so a name that resolves differently the next time gains nothing. If this
machine itself needs a proxy for the host, the connection goes through that proxy, which may resolve the name itself
(`upstream_proxy.py`). If only the proxy of this machine can resolve a name, the address is not checked.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from agent.config import private_addresses
from agent.config.host_allowlist import PORTS, in_url
from agent.config.proxies import in_the_way
from agent.errors import HostRefused, HostUnreached
from agent.sandbox.network import upstream_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config.host_allowlist import AllowedHost
    from agent.config.private_addresses import Address

SECONDS = 20.0
"""The time-out of one connection attempt in seconds."""

TRIES = 4
"""The maximum number of allowed addresses of one host that are tried one after the other."""


@dataclass(frozen=True, slots=True)
class Dialer:
    """Opens connections, only to hosts that the configuration allows.

    `allowed` are the entries of the configuration, `key` is the name of the key of these entries, `proxies` is the
    environment that names the proxies of this host.  `look_up` defaults to `socket.getaddrinfo`, `connect` to
    `socket.create_connection`.
    """

    allowed: Sequence[AllowedHost]
    key: str = "sandbox.network"
    proxies: Mapping[str, str] = field(default_factory=dict)
    look_up: Callable[..., Sequence[Any]] = socket.getaddrinfo
    connect: Callable[..., socket.socket] = socket.create_connection

    def open(self, host: str, port: int, scheme: str) -> socket.socket:
        """Open a connection to `host`, which has the form of `host_allowlist.normalize_host`.

        Raises HostRefused if the host is not allowed, HostUnreached if the name cannot be resolved or the connection
        fails.
        """
        entries = self.entries(host, port)
        proxy = in_the_way(f"{scheme}://{in_url(host)}:{port}/", self.proxies)
        try:
            found = self.look_up(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if proxy is not None and upstream_proxy.looks_up(proxy):
                return upstream_proxy.through(proxy, host, port, self.connect, SECONDS)
            raise HostUnreached(f"{host} is not known: {getattr(error, 'strerror', None) or error}") from error
        fit = self.allowed_addresses(host, [info[4][0] for info in found], entries)
        if proxy is not None:
            return upstream_proxy.through(
                proxy, host if upstream_proxy.looks_up(proxy) else str(fit[0]), port, self.connect, SECONDS
            )
        return self._connected(host, port, fit)

    def entries(self, host: str, port: int) -> list[AllowedHost]:
        """The entries that allow `host` at `port`; raises HostRefused if there are none."""
        named = [entry for entry in self.allowed if entry.fits(host)]
        if not named:
            raise HostRefused(f"{host} is not in {self.key}")
        fit = [entry for entry in named if port in entry.ports]
        if not fit:
            ports = sorted({port for entry in named for port in entry.ports})
            wanted = " and ".join(map(str, ports))
            raise HostRefused(f"port {port} of {host} is not in {self.key}, only {wanted}")
        return fit

    def allowed_addresses(self, host: str, found: Sequence[str], entries: Sequence[AllowedHost]) -> list[Address]:
        """The addresses in `found` to which a connection is allowed, at most TRIES; raises HostRefused, with the first
        reason, if none is allowed."""
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

    def refusal(self, address: Address, entries: Sequence[AllowedHost]) -> str:
        """The reason why a connection to `address` is not allowed, "" if it is allowed."""
        real = private_addresses.effective_address(address)
        if word := private_addresses.never_reachable(real):
            return f"has the address {address} ({word})"
        named = [entry.at for entry in entries if entry.at is not None and real in entry.at]
        if any(network.num_addresses == 1 for network in named):
            return ""
        if is_own(real):
            return f"has the address {address}, which is this machine's own"
        if named:
            return ""
        if word := private_addresses.private_kind(real):
            return f"has the address {address} ({word}), which is reached only where an entry of {self.key} names it"
        if all(entry.at is not None for entry in entries):
            return f"has the address {address}, which is not in {', '.join(str(entry.at) for entry in entries)}"
        return ""

    def _connected(self, host: str, port: int, fit: Sequence[Address]) -> socket.socket:
        said = ""
        for address in fit:
            try:
                return self.connect((str(address), port), SECONDS)
            except OSError as error:
                said = error.strerror or str(error)
        raise HostUnreached(f"{host}:{port} was not reached: {said}")


NOBODYS = {4: "240.0.0.1", 6: "100::1"}
"""For IPv4 and IPv6, an address that no machine has (RFC 1112, RFC 6666): a socket can be bound to it only if the
kernel lets sockets have addresses of other machines."""


def is_own(address: Address) -> bool:
    """Whether `address` is an address of this machine: a connection to it would have the same address as its source, or
    a socket can be bound to it while none can be bound to an address that no machine has. `is_own` sends no packet.

    The source address of a connection alone does not show all addresses of this machine: for a connection to a
    machine's second address in one network, the kernel uses the machine's first address as the source.
    """
    return _source(address) == address or (_can_bind(str(address)) and not _can_bind(NOBODYS[address.version]))


def _source(address: Address) -> Address | None:
    """The source address that a connection to `address` would have, None if the kernel names none, for example without
    a route."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as asked:
            asked.connect((str(address), PORTS[0]))
            return ip_address(asked.getsockname()[0].partition("%")[0])
    except OSError:
        return None


def _can_bind(text: str) -> bool:
    """Whether a socket can be bound to the address: the address belongs to this machine, or the kernel lets a socket
    have an address of another machine (`ip_nonlocal_bind`)."""
    try:
        with socket.socket(_family(ip_address(text)), socket.SOCK_DGRAM) as asked:
            asked.bind((text, 0))
            return True
    except OSError:
        return False


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6
