"""Nothing refused is ever connected to: what counts is what a listening socket accepted.

The sender alone, since one destination for each spelling would tell no more; see test_names for the whole relay.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from itertools import cycle
from typing import Any

import pytest

from relay.model import Answer, Destination, ErrorClass, Fault
from relay.sender import Sender
from tests.receivers.hosts import has_ipv6, one_port, port_of, serving
from tests.sender.receiver import HEADERS, Connection, keep_answering

# Spellings of the loopback address, or of one that embeds it. The first ones are what an operating system's own
# connect understands, so that each would be a way in.
WAYS_IN = ["127.0.0.1", "localhost", "2130706433", "017700000001", "0x7f000001", "0x7F.0.0.1", "0177.0.0.1", "127.1",
           "127.0.1", "127.255.255.254"]  # fmt: skip
WAYS_IN_6 = ["::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1"]
UNSPECIFIED = ["0", "0.0.0.0", "0x0", "00", "0.0", "000.000.000.000"]
UNSPECIFIED_6 = ["::", "::ffff:0.0.0.0", "::ffff:0:0"]
LOOPBACK = [
    *WAYS_IN,
    *(f"[{address}]" for address in WAYS_IN_6),
    *("127.0.0.1.", "localhost.", "2130706433.", "0x7f.1", "LOCALHOST", "127.0.0.1.."),
    *("[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::1]", "[::ffff:0:7f00:1]"),
    *("[2001:0:808:808::80ff:fffe]", "[::1%lo]", "[::1%25lo]", "[::1%1]"),
    *("１２７.0.0.1", "127。0。0。1", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "%6c%6fcalhost", "127.0.0.1%00.example", "loc\u00adalhost"),
]
NEVER = [
    *UNSPECIFIED,
    *(f"[{address}]" for address in UNSPECIFIED_6),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.254.169.254."),
    *("[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fd00:ec2::254]"),
    *("[fe80::1]", "[fe80::1%eth0]", "[fe80::1%25eth0]", "224.0.0.1", "[ff02::1]", "255.255.255.255"),
]
NOT_AN_ADDRESS = ["999.1.1.1", "127.0.0.256", "1.2.3.4.5", "4294967296", "[v1.a]", "[::1]]", "[::1", "-", "a" * 64]


class Listening:
    """One port on every loopback address; `accepted` has the address of each connection that was made."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.accepted: list[str] = []

    async def serve(self, connection: Connection) -> None:
        self.accepted.append(connection.writer.get_extra_info("sockname")[0])
        await keep_answering(connection)

    def destination(self, host: str, egress: str | tuple[str, ...]) -> Destination:
        url = f"http://{host}:{self.port}/"
        return Destination("receiver", url, egress=egress, deadline_s=5.0, connect_timeout_s=0.5)


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Listening]:
    """Listeners on 127.0.0.1, 127.0.0.2 and ::1, one port."""
    sockets = one_port("127.0.0.1", "127.0.0.2", *(["::1"] if has_ipv6() else []))
    built = Listening(port_of(sockets[0]))
    async with serving(built.serve, *sockets):
        yield built
    for each in sockets:
        each.close()


@pytest.fixture
def listening(shared: Listening) -> Listening:
    """The listeners, with nothing accepted yet."""
    shared.accepted.clear()
    return shared


@pytest.fixture(scope="module")
async def sender() -> AsyncIterator[Sender]:
    """One for all tests that never get a connection."""
    async with Sender() as sender:
        yield sender


async def refused(sender: Sender, listening: Listening, host: str, egress: str | tuple[str, ...]) -> Fault:
    """Send to `host`, and see that nothing was connected to."""
    result = await sender.send(listening.destination(host, egress), HEADERS, b"{}")
    assert isinstance(result, Fault), result
    assert listening.accepted == []
    return result


@pytest.mark.parametrize("host", [*WAYS_IN[:-1], *UNSPECIFIED, *WAYS_IN_6, *UNSPECIFIED_6[1:]])
async def test_an_operating_system_left_alone_would_connect(listening: Listening, host: str) -> None:
    """Without this the other tests could pass because nobody understands a spelling."""
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no ::1")
    await asyncio.to_thread(lambda: socket.create_connection((host, listening.port), 5).close())
    while not listening.accepted:
        await asyncio.sleep(0)


@pytest.mark.parametrize("egress", ["public", ("10.0.0.0/8", "2000::/3"), ("127.0.0.3/32",)], ids=str)
@pytest.mark.parametrize("host", LOOPBACK)
async def test_no_spelling_of_loopback_gets_a_connection_where_it_is_not_allowed(
    sender: Sender, listening: Listening, host: str, egress: str | tuple[str, ...]
) -> None:
    fault = await refused(sender, listening, host, egress)
    assert fault.error_class in {ErrorClass.EGRESS, ErrorClass.DNS}


@pytest.mark.parametrize("egress", ["any", "public", ("0.0.0.0/0", "::/0")], ids=str)
@pytest.mark.parametrize("host", NEVER)
async def test_no_policy_lets_through_what_no_webhook_can_be(
    sender: Sender, listening: Listening, host: str, egress: str | tuple[str, ...]
) -> None:
    assert (await refused(sender, listening, host, egress)).error_class is ErrorClass.EGRESS


@pytest.mark.parametrize("host", NOT_AN_ADDRESS)
async def test_what_looks_like_an_address_and_is_none_is_a_fault_and_no_bug(
    sender: Sender, listening: Listening, host: str
) -> None:
    assert (await refused(sender, listening, host, "any")).error_class in {ErrorClass.EGRESS, ErrorClass.DNS}


class Resolver:
    """Stands in for the operating system's: takes the answers for `victim.test` in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._answers: Iterator[list[str]] = iter(())
        self._original = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)

    def answer(self, *answers: list[str]) -> None:
        """Answer this from now on, again and again."""
        self._answers = cycle(answers)

    def _resolve(self, host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in (b"victim.test", "victim.test"):
            return self._original(host, *arguments, **options)
        self.calls += 1
        addresses = next(self._answers)
        return [entry for each in addresses for entry in self._original(each, *arguments, **options)]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """The resolver of this test."""
    return Resolver(monkeypatch)


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.2", "127.0.0.1"],
        ["169.254.169.254", "::ffff:127.0.0.1", "127.0.0.2"],
        ["0.0.0.0", "127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1"],
    ],
    ids=", ".join,
)
async def test_of_mixed_answers_only_the_allowed_address_is_connected_to(
    listening: Listening, resolver: Resolver, answers: list[str]
) -> None:
    resolver.answer(answers)
    async with Sender() as sender:
        destination = listening.destination("victim.test", ("127.0.0.2/32",))
        assert isinstance(await sender.send(destination, HEADERS, b"{}"), Answer)
    assert listening.accepted == ["127.0.0.2"]


async def test_of_mixed_answers_without_an_allowed_one_none_is_connected_to(
    sender: Sender, listening: Listening, resolver: Resolver
) -> None:
    resolver.answer(["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1", "0.0.0.0", "10.0.0.1"])
    assert (await refused(sender, listening, "victim.test", "public")).error_class is ErrorClass.EGRESS


@pytest.mark.parametrize("first", ["127.0.0.1", "127.0.0.2"])
async def test_a_name_that_changes_between_look_up_and_connect_never_leads_to_a_refused_address(
    listening: Listening, resolver: Resolver, first: str
) -> None:
    """Each connection is looked up once, and made to what was judged; a kept one is not looked up again."""
    resolver.answer([first], ["127.0.0.2" if first == "127.0.0.1" else "127.0.0.1"])
    destination = listening.destination("victim.test", ("127.0.0.2/32",))
    kinds = []
    for connection in range(1, 7):
        async with Sender() as sender:
            results = [await sender.send(destination, HEADERS, b"{}") for _ in range(2)]
        assert resolver.calls == connection
        kinds.append({type(result) for result in results})
    assert kinds == ([{Answer}, {Fault}] * 3 if first == "127.0.0.2" else [{Fault}, {Answer}] * 3)
    assert listening.accepted == ["127.0.0.2"] * 3
