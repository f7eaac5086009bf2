"""Receivers behind names: what a name resolves to is none of the sender's choosing.

Names are answered inside the relay process (names/sitecustomize.py), so no machine has to know them.
"""

import socket

import pytest

from tests.receivers.hosts import filtering, has_ipv6, port_of, serving
from tests.receivers.street import Street
from tests.sender.receiver import OK, Connection, answering

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


@pytest.mark.parametrize("name", ["nothing", "missing"])
async def test_a_name_that_resolves_to_nothing_is_a_dns_fault(street: Street, name: str) -> None:
    house = street.house(name)
    fate = await street.visit(house, answering(OK))
    assert fate.failed == [("dns", None)]
    assert house.connections == []


async def test_a_name_that_resolves_again_after_a_while_is_delivered_to(street: Street) -> None:
    fate = await street.visit(street.house("healing"), answering(OK), max_attempts=5)
    assert (fate.status, fate.failed) == ("done", [("dns", None)] * 2)


@needs_ipv6
async def test_a_dead_ipv6_address_beside_a_live_ipv4_one_costs_no_attempt(
    street: Street, listeners: dict[str, list[socket.socket]]
) -> None:
    live, dead = listeners["dual"]
    with filtering(dead):
        async with serving(answering(OK), live):
            fate = await street.visit(street.house("dual"), None)
    assert (fate.status, fate.attempts, fate.failed) == ("done", 1, [])


async def test_a_name_of_private_addresses_is_never_connected_to_where_only_public_ones_are_allowed(
    street: Street,
) -> None:
    house = street.house("private")
    fate = await street.visit(house, answering(OK))
    assert fate.failed == [("egress", None)]
    assert house.connections == []


async def test_a_name_of_the_metadata_address_is_refused_under_any_policy(street: Street) -> None:
    fate = await street.visit(street.house("metadata"), answering(OK))
    assert fate.failed == [("egress", None)]
    assert "169.254.169.254" in await street.detail(fate.job)


async def test_of_mixed_addresses_only_an_allowed_one_is_connected_to(street: Street) -> None:
    house = street.house("mixed")
    fate = await street.visit(house, answering(OK))
    assert (fate.status, fate.failed, len(house.connections)) == ("done", [], 1)


async def test_a_name_with_a_different_address_each_time_is_delivered_to(
    street: Street, listeners: dict[str, list[socket.socket]]
) -> None:
    async with serving(answering(OK), *listeners["moving"]):
        for _ in range(3):
            fate = await street.visit(street.house("moving"), None)
            assert (fate.status, fate.failed) == ("done", [])


@needs_ipv6
async def test_an_ipv6_literal_is_delivered_to_with_its_brackets_in_the_host_header(
    street: Street, listeners: dict[str, list[socket.socket]]
) -> None:
    heads: list[bytes] = []

    async def handler(connection: Connection) -> None:
        heads.append((await connection.request())[0])
        await connection.write(OK)

    async with serving(handler, *listeners["literal"]):
        fate = await street.visit(street.house("literal"), None)
    assert (fate.status, fate.failed) == ("done", [])
    assert b"\r\nHost: [::1]:%d\r\n" % port_of(listeners["literal"][0]) in heads[0]


async def test_an_internationalised_name_is_looked_up_and_sent_as_punycode(street: Street) -> None:
    heads: list[bytes] = []

    async def handler(connection: Connection) -> None:
        heads.append((await connection.request())[0])
        await connection.write(OK)

    house = street.house("umlaut")
    fate = await street.visit(house, handler)
    assert (fate.status, fate.failed) == ("done", [])
    assert b"\r\nHost: xn--empfnger-3za.test:%d\r\n" % house.receiver.port in heads[0]
