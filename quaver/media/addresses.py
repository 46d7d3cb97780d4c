"""Which addresses a server may connect to because a request says so: public unicast ones.

Sources: the IANA registries of special-purpose IPv4 and IPv6 addresses; RFC 6052 for NAT64.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address

GLOBAL_UNICAST = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")

#: Special ranges that not every supported Python knows, and a cloud's own service on an ordinary address.
NOT_PUBLIC = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("168.63.129.16/32"),
    IPv6Network("3fff::/20"),
)


def is_public(address: Address) -> bool:
    """Whether ``address`` is an ordinary host of the internet.

    False for private, shared (CGNAT), loopback, link-local, multicast, unspecified, reserved and metadata
    addresses. An IPv4-mapped or NAT64 address is judged by the IPv4 address that it leads to; 6to4 and Teredo
    tunnels lead anywhere and are refused.
    """
    if any(address in network for network in NOT_PUBLIC):
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    if address.ipv4_mapped:
        return is_public(address.ipv4_mapped)
    # A gateway would connect to the IPv4 address inside, so a private one must not hide there.
    if address in NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in GLOBAL_UNICAST and address.is_global and not (address.sixtofour or address.teredo)
