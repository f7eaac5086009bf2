from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules.egress import canonical_host, host_fault, is_address, refusal

EVERYTHING = ("0.0.0.0/0", "::/0")
NEVER_IPV4 = [
    "169.254.169.254",
    "169.254.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
]
NEVER_IPV6 = ["fe80::1", "fe80::1%eth0", "febf::1%25eth0", "ff02::1", "::", "fd00:ec2::254", "fd20:ce::254"]


def embeddings(address: str) -> list[str]:
    """Every IPv6 spelling of an IPv4 address that some network delivers to that address."""
    number = int(IPv4Address(address))
    return [
        str(IPv6Address(number)),
        str(IPv6Address(0xFFFF << 32 | number)),
        str(IPv6Address(0xFFFF << 48 | number)),
        str(IPv6Address(int(IPv6Address("64:ff9b::")) | number)),
        str(IPv6Address(int(IPv6Address("64:ff9b:1::")) | number)),
        str(IPv6Address(int(IPv6Address("2002::")) | number << 80)),
        str(IPv6Address(int(IPv6Address("2001:0:808:808::")) | number ^ 0xFFFF_FFFF)),
        str(IPv6Address(int(IPv6Address("2001::f7f7:f7f7")) | number << 64)),
    ]


@pytest.mark.parametrize("address", NEVER_IPV4 + NEVER_IPV6)
@pytest.mark.parametrize("policy", ["any", "public", EVERYTHING])
def test_what_no_webhook_can_be_is_refused_under_every_policy(address: str, policy: str | tuple[str, ...]) -> None:
    assert "no policy allows it" in str(refusal(address, policy))


@pytest.mark.parametrize("address", NEVER_IPV4)
@pytest.mark.parametrize("policy", ["any", EVERYTHING])
def test_the_same_inside_an_ipv6_address_is_refused(address: str, policy: str | tuple[str, ...]) -> None:
    for spelling in embeddings(address):
        assert "no policy allows it" in str(refusal(spelling, policy)), spelling


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "fd12::1", "8.8.8.8", "2600::1"])
def test_any_allows_loopback_private_and_public_addresses(address: str) -> None:
    assert refusal(address, "any") is None


@pytest.mark.parametrize("address", ["8.8.8.8", "2600::1", "2a00:1450:4001:81b::200e"])
def test_public_allows_addresses_that_are_routed_on_the_internet(address: str) -> None:
    assert refusal(address, "public") is None


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.8.9.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1", "192.0.2.1"]
)
def test_public_refuses_other_addresses_and_the_same_inside_ipv6(address: str) -> None:
    for spelling in [address, *embeddings(address)]:
        assert "egress policy (public)" in str(refusal(spelling, "public")), spelling


@pytest.mark.parametrize("address", ["::1", "fd12::1", "fc00::1", "2001:db8::1", "fec0::1"])
def test_public_refuses_ipv6_addresses_that_are_not_routed(address: str) -> None:
    assert "egress policy (public)" in str(refusal(address, "public"))


def test_public_allows_a_public_address_behind_nat64() -> None:
    assert refusal("64:ff9b::808:808", "public") is None


def test_a_list_of_networks_allows_its_members_only() -> None:
    policy = ("10.0.0.0/8", "fd12::/16")
    assert refusal("10.1.2.3", policy) is None
    assert refusal("::ffff:10.1.2.3", policy) is None
    assert refusal("fd12::9%eth0", policy) is None
    assert refusal("11.1.2.3", policy) == (
        "11.1.2.3 is outside the destination's egress policy (10.0.0.0/8, fd12::/16)"
    )
    assert refusal("::ffff:8.8.8.8", policy) == (
        "8.8.8.8 is outside the destination's egress policy (10.0.0.0/8, fd12::/16), "
        f"reached through {IPv6Address('::ffff:8.8.8.8')}"
    )


def test_an_empty_list_allows_nothing() -> None:
    assert refusal("8.8.8.8", ()) is not None


@pytest.mark.parametrize("address", ["", "localhost", "1.2.3", "0x7f.1", "[::1]", "1.2.3.4\n"])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    assert "is not an IP address" in str(refusal(address, "any"))


def test_an_unknown_policy_is_an_error_and_not_a_permission() -> None:
    with pytest.raises(ValueError, match="'everything'"):
        refusal("8.8.8.8", "everything")


@given(st.ip_addresses(), st.sampled_from(["any", "public", EVERYTHING, ("10.0.0.0/8",)]))
def test_what_another_policy_allows_any_allows_too(
    address: IPv4Address | IPv6Address, policy: str | tuple[str, ...]
) -> None:
    assert refusal(str(address), policy) is not None or refusal(str(address), "any") is None


@given(st.ip_addresses(v=4), st.sampled_from(["any", "public", EVERYTHING, ("10.0.0.0/8",)]))
def test_a_mapped_address_is_judged_as_the_address_it_maps(address: IPv4Address, policy: str | tuple[str, ...]) -> None:
    mapped = refusal(f"::ffff:{address}", policy)
    assert (mapped is None) == (refusal(str(address), policy) is None)


@pytest.mark.parametrize(
    "spelling",
    [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0X7F.0.0.1",
        "0x7f.1",
        "0177.0.0.01",
        "017700000001",
        "１２７.0.0.1",
        "127。0。0。1",
        "①②⑦.0.0.1",
    ],
)
def test_every_spelling_of_an_ipv4_literal_is_the_same_host(spelling: str) -> None:
    assert canonical_host(spelling) == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("::1", "::1"),
        ("[::FFFF:127.0.0.1]", str(IPv6Address("::ffff:127.0.0.1"))),
        ("[FE80::1%eth0]", "fe80::1%eth0"),
        ("0", "0.0.0.0"),
        ("0x", "0.0.0.0"),
        ("1.2.3.0xff", "1.2.3.255"),
        ("1.65535", "1.0.255.255"),
        ("4294967295", "255.255.255.255"),
    ],
)
def test_a_literal_address_becomes_canonical(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Shop.Example.COM", "shop.example.com"),
        ("svc.cluster.local.", "svc.cluster.local."),
        ("Bücher.Example", "bücher.example"),
        ("256.0.0.1", "256.0.0.1"),
        ("1.2.3.4.5", "1.2.3.4.5"),
        ("1.2.3.08", "1.2.3.08"),
        ("4294967296", "4294967296"),
        ("1..2", "1..2"),
        ("1_0.0.0.1", "1_0.0.0.1"),
        ("0xfg", "0xfg"),
        ("", ""),
        (".", "."),
        ("9" * 5000, "9" * 5000),
        ("[nonsense]", "[nonsense]"),
    ],
)
def test_anything_else_is_a_name_in_lower_case(host: str, name: str) -> None:
    assert canonical_host(host) == name


@given(st.text("0123456789abcdefx.:[]"))
def test_a_canonical_host_stays_as_it_is(host: str) -> None:
    assert canonical_host(canonical_host(host)) == canonical_host(host)


@given(st.ip_addresses())
def test_every_address_is_its_own_canonical_host(address: IPv4Address | IPv6Address) -> None:
    assert ip_address(canonical_host(str(address))) == address


@pytest.mark.parametrize(
    "host",
    [
        "shop.example",
        "localhost",
        "localhost.",
        "svc.cluster.local.",
        "my_service",
        "3com.example",
        "xn--bcher-kva.example",
        "b\u00fccher.example",
        "\u65e5\u672c\u8a9e.jp",
        "10.0.0.5",
        "127.0.0.1",
        "::1",
        "0:0:0:0:0:0:0:1",
        "::ffff:7f00:1",
        "0xfg",
        "a" * 63,
    ],
)
def test_a_host_that_may_be_delivered_to_has_no_fault(host: str) -> None:
    assert host_fault(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "0177.0.0.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "127.1",
        "127.0.0.1.",
        "\uff11\uff12\uff17.0.0.1",
    ],
)
def test_an_address_in_another_spelling_is_refused_with_the_usual_one(host: str) -> None:
    assert host_fault(host) == f"{host} is the address 127.0.0.1 in another spelling; write 127.0.0.1"


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        ("2852039166", "169.254.169.254 is link-local, where clouds serve credentials; no policy allows it"),
        ("0", "0.0.0.0 is unspecified; no policy allows it"),
        ("ff02::1", "ff02::1 is multicast; no policy allows it"),
        ("fe80::1%25eth0", "fe80::1%25eth0 is link-local; no policy allows it"),
        ("::1%lo", "::1%lo has a zone id, which only link-local addresses need"),
        ("\u24db\u24de\u24d2\u24d0\u24db", "\u24db\u24de\u24d2\u24d0\u24db reads as local; write local"),
        ("127.0.0.1..", "127.0.0.1.. has an empty label, or one of more than 63 characters"),
        ("a..b", "a..b has an empty label, or one of more than 63 characters"),
        (".", ". has an empty label, or one of more than 63 characters"),
        ("a" * 64, "a" * 64 + " has an empty label, or one of more than 63 characters"),
        ("256.0.0.1", "256.0.0.1 ends in a number and is no IPv4 address, so it never resolves"),
        ("1.2.3.08", "1.2.3.08 ends in a number and is no IPv4 address, so it never resolves"),
        ("4294967296", "4294967296 ends in a number and is no IPv4 address, so it never resolves"),
        ("a.0x1", "a.0x1 ends in a number and is no IPv4 address, so it never resolves"),
        ("%6c%6fcal", "%6c%6fcal is no host name: letters, digits, - and _, in labels separated by dots"),
        ("v1:a", "v1:a is no host name: letters, digits, - and _, in labels separated by dots"),
    ],
)
def test_a_host_that_nothing_is_ever_delivered_to_is_refused_with_the_reason(host: str, fault: str) -> None:
    assert host_fault(host) == fault


@given(st.text("0123456789abcdefx.:%", min_size=1))
def test_every_host_without_a_fault_that_reads_as_an_address_is_written_as_one(host: str) -> None:
    if host_fault(host) is None:
        assert is_address(host) == is_address(canonical_host(host))


@given(st.ip_addresses())
def test_an_address_has_a_fault_exactly_where_every_policy_refuses_it(address: IPv4Address | IPv6Address) -> None:
    assert host_fault(str(address)) == refusal(str(address), "any")
