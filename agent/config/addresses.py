"""Addresses that are not of the public network, as data: what an allow-list of names must not lead to.

The networks are those of IANA's registries of special addresses (iana-ipv4-special-registry, RFC 6890 and its updates;
iana-ipv6-special-registry), of multicast, and the few public or private ones at which clouds hand out credentials.  The
list is written here, since `ipaddress.is_global` differs between Python versions.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PRIVATE = (
    ("10.0.0.0/8", "private"),
    ("172.16.0.0/12", "private"),
    ("192.168.0.0/16", "private"),
    ("100.64.0.0/10", "of a provider's own network"),
    ("198.18.0.0/15", "for tests of networks"),
    ("fc00::/7", "private"),
)
"""Networks that an administrator may name on purpose, each with its word."""

NEVER = (
    ("0.0.0.0/8", "this host"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local, where clouds answer with credentials"),
    ("168.63.129.16/32", "a cloud's own service"),
    ("100.100.100.200/32", "a cloud's own service"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documents"),
    ("192.88.99.0/24", "reserved"),
    ("198.51.100.0/24", "for documents"),
    ("203.0.113.0/24", "for documents"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/8", "reserved, loopback among them"),
    ("64:ff9b:1::/48", "a translation into a private network"),
    ("100::/64", "discarded"),
    ("100:0:0:1::/64", "discarded"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documents"),
    ("3fff::/20", "for documents"),
    ("5f00::/16", "reserved"),
    ("fd00:ec2::254/128", "a cloud's own service"),
    ("fd20:ce::254/128", "a cloud's own service"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "of a site"),
    ("ff00::/8", "multicast"),
)
"""Networks that no configuration opens, each with its word."""

_PRIVATE = [(ip_network(network), word) for network, word in PRIVATE]
_NEVER = [(ip_network(network), word) for network, word in NEVER]
_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052
_6TO4 = ip_network("2002::/16")  # RFC 3056


def meant(address: str | Address) -> Address:
    """The address that is reached in the end: an IPv4 address that stands in an IPv6 one is that one."""
    found = ip_address(address) if isinstance(address, str) else address
    if isinstance(found, IPv6Address):
        number = int(found)
        if found.ipv4_mapped is not None:
            return found.ipv4_mapped
        if found in _NAT64:
            return IPv4Address(number & 0xFFFF_FFFF)
        if found in _6TO4:
            return IPv4Address(number >> 80 & 0xFFFF_FFFF)
    return found


def never(address: Address | Network) -> str:
    """The word for an address or a network that nothing opens, "" for any other."""
    return _word(address, _NEVER)


def private(address: Address | Network) -> str:
    """The word for an address or a network that is not public and may be named on purpose, "" for any other."""
    return _word(address, _PRIVATE)


def _word(wanted: Address | Network, table: list[tuple[Network, str]]) -> str:
    network = ip_network(wanted)
    for known, word in table:
        if isinstance(network, IPv4Network):
            if isinstance(known, IPv4Network) and network.subnet_of(known):
                return word
        elif isinstance(known, IPv6Network) and network.subnet_of(known):
            return word
    return ""
