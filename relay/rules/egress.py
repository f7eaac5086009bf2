"""Where a delivery may connect to.

Checked on the textual address of the socket, after resolution, so that a name that resolves differently a
moment later changes nothing. Operators choose destinations, so private addresses are normal (`any`); what no
webhook can be, and what hands out credentials to whoever asks, is refused under every policy. An address
that embeds an IPv4 address (mapped, NAT64, 6to4, Teredo) is judged by that one: packets end up there.
"""

import functools
import unicodedata
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network

_LOW_32_BITS_ARE_IPV4 = (
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated, RFC 2765
    IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
    IPv6Network("64:ff9b:1::/48"),  # NAT64 for local use, RFC 8215
)
_IN_NAMES = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_LONGEST_LABEL = 63  # RFC 1035, section 2.3.4
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # the only IPv6 space given out so far
_NEVER: tuple[tuple[_Network, str], ...] = (
    (IPv4Network("169.254.0.0/16"), "link-local, where clouds serve credentials"),
    (IPv6Network("fe80::/10"), "link-local"),
    (IPv6Network("fd00:ec2::/32"), "the metadata range of AWS"),
    (IPv6Network("fd20:ce::/32"), "the metadata range of Google Cloud"),
    (IPv6Network("fd00:c1::a9fe:a9fe/128"), "the metadata address of Oracle Cloud"),
    (IPv4Network("192.0.0.192/32"), "the metadata address of Oracle Cloud"),
    (IPv4Network("168.63.129.16/32"), "the metadata address of Azure"),
    (IPv4Network("100.100.100.200/32"), "the metadata address of Alibaba Cloud"),
    (IPv4Network("224.0.0.0/4"), "multicast"),
    (IPv6Network("ff00::/8"), "multicast"),
    (IPv4Network("0.0.0.0/8"), "unspecified"),
    (IPv6Network("::/128"), "unspecified"),
    (IPv4Network("255.255.255.255/32"), "broadcast"),
)


def refusal(address: str, policy: str | tuple[str, ...]) -> str | None:
    """Why a connection to `address` (an IP address as text, zone id allowed) is refused; None when allowed.

    `policy` is `any`, `public` (only addresses routed on the Internet) or a tuple of CIDR networks.
    Raises ValueError for any other policy.
    """
    try:
        outer = ip_address(address)
    except ValueError:
        return f"{address!r} is not an IP address"
    for ip in _reached(outer):
        via = "" if ip == outer else f", reached through {outer}"
        if never := next((why for network, why in _NEVER if ip in network), None):
            return f"{ip} is {never}; no policy allows it{via}"
        if not _allowed(ip, policy):
            named = policy if isinstance(policy, str) else ", ".join(policy)
            return f"{ip} is outside the destination's egress policy ({named}){via}"
    return None


def canonical_host(host: str) -> str:
    """A URL's host as `refusal` reads it when it is a literal address in any spelling, else in lower case.

    IPv4 may be short, decimal, octal or hexadecimal (inet_aton, WHATWG URL section 3.5) and end in a dot;
    IPv6 loses its brackets. Full-width characters are read as resolvers read them.
    """
    text = unicodedata.normalize("NFKC", host).replace("\N{IDEOGRAPHIC FULL STOP}", ".").lower()
    if text.startswith("[") and text.endswith("]"):
        try:
            return str(IPv6Address(text[1:-1]))
        except ValueError:
            return text
    number = _inet_aton(text.removesuffix("."))
    if number is not None:
        return str(IPv4Address(number))
    try:
        return str(IPv6Address(text))
    except ValueError:
        return text


def host_fault(host: str) -> str | None:
    """Why nothing can be delivered to a URL's host, whatever the policy and the resolver say; None when it may be.

    `host` has no brackets. Spellings of addresses that only some programs understand (WHATWG URL section 3.5)
    are refused with the usual one: what reads them otherwise than the person who wrote them is a way around a rule.
    """
    canonical = canonical_host(host)
    if is_address(canonical):
        if never := refusal(canonical, "any"):
            return never
        if not is_address(host):
            return f"{host} is the address {canonical} in another spelling; write {canonical}"
        return f"{host} has a zone id, which only link-local addresses need" if "%" in host else None
    return _name_fault(host, canonical)


def _name_fault(host: str, canonical: str) -> str | None:
    if canonical != host.lower():
        return f"{host} reads as {canonical}; write {canonical}"
    if ":" in host or not set(filter(str.isascii, canonical)) <= _IN_NAMES:
        return f"{host} is no host name: letters, digits, - and _, in labels separated by dots"
    labels = canonical.removesuffix(".").split(".")
    if not all(0 < len(label) <= _LONGEST_LABEL for label in labels):
        return f"{host} has an empty label, or one of more than {_LONGEST_LABEL} characters"
    ends_in_number = _number(labels[-1]) is not None or labels[-1].isdecimal()
    return f"{host} ends in a number and is no IPv4 address, so it never resolves" if ends_in_number else None


def is_address(host: str) -> bool:
    """Whether `host`, without brackets, is a literal address in its usual spelling."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _reached(ip: _Address) -> tuple[_Address, ...]:
    """The addresses that packets to `ip` end up at: what it embeds, or itself."""
    if isinstance(ip, IPv4Address):
        return (ip,)
    if any(ip in network for network in _LOW_32_BITS_ARE_IPV4):
        return (IPv4Address(int(ip) & 0xFFFF_FFFF),)
    if int(ip) >> 32 == 0 and int(ip) > 1:  # IPv4-compatible, RFC 4291 section 2.5.5.1
        return (IPv4Address(int(ip)),)
    if ip.sixtofour is not None:
        return (ip.sixtofour,)
    if ip.teredo is not None:
        return ip.teredo
    return (ip,)


def _allowed(ip: _Address, policy: str | tuple[str, ...]) -> bool:
    match policy:
        case "any":
            return True
        case "public":
            return ip.is_global and (ip.version == 4 or ip in _GLOBAL_UNICAST)
        case tuple():
            return any(ip in network for network in _networks(policy))
        case _:
            raise ValueError(f"egress policy {policy!r} is not any, public or a list of networks")


@functools.lru_cache(maxsize=1024)
def _networks(cidrs: tuple[str, ...]) -> tuple[_Network, ...]:
    return tuple(ip_network(cidr, strict=False) for cidr in cidrs)


def _inet_aton(text: str) -> int | None:
    parts = text.split(".")
    if len(parts) > 4:
        return None
    numbers = [_number(part) for part in parts]
    *leading, last = numbers
    if last is None or last >= 256 ** (5 - len(parts)):
        return None
    value = last
    for place, number in enumerate(leading):
        if number is None or number > 255:
            return None
        value += number << (8 * (3 - place))
    return value


def _number(part: str) -> int | None:
    digits, base = (part[2:] or "0", 16) if part.startswith("0x") else (part, 8 if part.startswith("0") else 10)
    if len(digits) > 32 or not digits.isascii() or not digits.isalnum():
        return None
    try:
        return int(digits, base)
    except ValueError:
        return None
