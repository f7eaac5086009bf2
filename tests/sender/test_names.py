"""Look-ups are shared, and one that hangs holds up nobody; of several addresses a live one is found."""

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from relay.http import dial
from relay.model import Answer, ErrorClass, Fault, Result
from relay.sender import Sender
from tests.sender.receiver import HEADERS, Receiver, keep_answering, receiving


class Names:
    """Stands in for the operating system's resolver: answers `*.test`, and `hangs.*.test` only when released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, list[str]] = {}
        self.released = threading.Event()
        self._original = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)

    def _resolve(self, host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if not name.endswith(".test"):
            return self._original(host, *arguments, **options)
        self.asked.append(name)
        if name.startswith("hangs."):
            self.released.wait(30)
        addresses = self.answers.get(name, ["127.0.0.1"])
        if not addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [entry for each in addresses for entry in self._original(each, *arguments, **options)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """The resolver of this test."""
    built = Names(monkeypatch)
    yield built
    built.released.set()


async def send(sender: Sender, receiver: Receiver, host: str, **settings: object) -> Result:
    destination = receiver.destination(url=f"http://{host}:{receiver.port}/", **settings)
    return await sender.send(destination, HEADERS, b"{}")


async def test_connections_that_are_made_at_once_share_one_look_up(sender: Sender, names: Names) -> None:
    async with receiving(keep_answering) as receiver:
        results = await asyncio.gather(*(send(sender, receiver, "shared.test") for _ in range(20)))
    assert all(isinstance(result, Answer) for result in results)
    assert names.asked == ["shared.test"]


async def test_a_name_that_did_not_resolve_is_looked_up_again(sender: Sender, names: Names) -> None:
    names.answers["healing.test"] = []
    async with receiving(keep_answering) as receiver:
        results = await asyncio.gather(*(send(sender, receiver, "healing.test") for _ in range(5)))
        for result in results:
            assert result == Fault(
                ErrorClass.DNS, "healing.test does not resolve: Temporary failure in name resolution"
            )
        names.answers["healing.test"] = ["127.0.0.1"]
        assert isinstance(await send(sender, receiver, "healing.test"), Answer)
    assert names.asked == ["healing.test"] * 2


async def test_a_hundred_names_that_hang_hold_up_no_other_name_and_not_the_end_of_the_process(
    sender: Sender, names: Names
) -> None:
    async with receiving(keep_answering) as receiver:
        hanging = [
            asyncio.create_task(send(sender, receiver, f"hangs.{n}.test", deadline_s=60.0, connect_timeout_s=60.0))
            for n in range(100)
        ]
        while len(names.asked) < 100:
            await asyncio.sleep(0)
        assert isinstance(await send(sender, receiver, "good.test"), Answer)
        looking = [thread for thread in threading.enumerate() if thread.name.startswith("dns hangs.")]
        assert len(looking) == 100
        assert all(thread.daemon for thread in looking)
        names.released.set()
        assert all(isinstance(result, Answer) for result in await asyncio.gather(*hanging))


async def test_a_name_that_hangs_ends_at_the_connect_timeout(sender: Sender, names: Names) -> None:
    async with receiving(keep_answering) as receiver:
        result = await send(sender, receiver, "hangs.0.test", connect_timeout_s=0.1)
    assert result == Fault(ErrorClass.CONNECT, "no connection within the connect timeout (name, TCP and TLS)")
    assert names.asked == ["hangs.0.test"]


async def test_a_name_that_fails_when_nobody_waits_any_more_leaves_no_complaint(
    sender: Sender, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    names.answers["hangs.0.test"] = []
    async with receiving(keep_answering) as receiver:
        await send(sender, receiver, "hangs.0.test", connect_timeout_s=0.1)
        names.released.set()
        while any(thread.name == "dns hangs.0.test" for thread in threading.enumerate()):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_name_that_hangs_ends_at_the_deadline_where_that_is_sooner(sender: Sender, names: Names) -> None:
    async with receiving(keep_answering) as receiver:
        result = await send(sender, receiver, "hangs.0.test", deadline_s=0.1)
    assert result == Fault(ErrorClass.DEADLINE, "no complete answer within 0.1 s, given up while connecting")
    assert names.asked == ["hangs.0.test"]


@pytest.mark.parametrize("answer", [["127.0.0.3", "127.0.0.1"], ["127.0.0.1", "127.0.0.3"], ["::1", "127.0.0.1"]])
async def test_an_address_that_refuses_is_passed_over(sender: Sender, names: Names, answer: list[str]) -> None:
    names.answers["two.test"] = answer
    async with receiving(keep_answering) as receiver:
        assert isinstance(await send(sender, receiver, "two.test"), Answer)
    assert len(receiver.connections) == 1


async def test_addresses_that_all_refuse_are_one_connect_fault(sender: Sender, names: Names) -> None:
    names.answers["dead.test"] = ["127.0.0.3", "127.0.0.4", "127.0.0.5"]
    async with receiving(keep_answering) as receiver:
        result = await send(sender, receiver, "dead.test")
    assert result == Fault(ErrorClass.CONNECT, f"cannot connect to dead.test:{receiver.port}: Connection refused")


async def test_addresses_that_are_silent_are_passed_over_within_one_connect_timeout(
    sender: Sender, names: Names
) -> None:
    async with receiving(keep_answering) as receiver:
        silent = [socket.create_server((f"127.0.0.{n}", receiver.port), backlog=0) for n in (6, 7, 8)]
        guests = [socket.create_connection(each.getsockname()) for each in silent]
        names.answers["slow.test"] = ["127.0.0.6", "127.0.0.7", "127.0.0.8", "127.0.0.1"]
        assert isinstance(await send(sender, receiver, "slow.test"), Answer)
        assert len(receiver.connections) == 1
        for each in (*guests, *silent):
            each.close()


def test_the_two_families_take_turns_and_the_better_one_begins() -> None:
    addresses = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.1", "192.0.2.2"]
    assert dial._interleaved(addresses) == [
        "2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2", "2001:db8::3",
    ]  # fmt: skip
    assert dial._interleaved(["192.0.2.1", "2001:db8::1"]) == ["192.0.2.1", "2001:db8::1"]
