"""Lists networks outside the public internet, as data: names on an allow-list must not lead to them.

The networks come from IANA's registries of special addresses (iana-ipv4-special-registry, RFC 6890 and its updates;
iana-ipv6-special-registry). The lists also contain multicast addresses, and the few addresses at which clouds serve
credentials. The networks are listed one by one, since `ipaddress.is_global` differs between Python versions.
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
"""Private networks that an administrator may allow explicitly, each with its description."""

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
"""Networks that no configuration can allow, each with its description."""

_PRIVATE = [(ip_network(network), word) for network, word in PRIVATE]
_NEVER = [(ip_network(network), word) for network, word in NEVER]
_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052
_6TO4 = ip_network("2002::/16")  # RFC 3056


def effective_address(address: str | Address) -> Address:
    """The address that a connection reaches: an IPv4 address if `address` is an IPv6 address that contains one."""
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


def never_reachable(address: Address | Network) -> str:
    """The description of an address or network that can never be allowed; "" for any other."""
    return _word(address, _NEVER)


def private_kind(address: Address | Network) -> str:
    """The description of a private address or network that may be allowed explicitly; "" for any other."""
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
