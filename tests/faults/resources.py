"""Faults of what a replica lives on: descriptors, its loop, time, names, and somewhere to log and to report to.

Memory is in memory.py.
"""

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from aiohttp import web

from tests.faults.bench import BACK_S, LEASE_S, Bench
from tests.faults.conftest import Report
from tests.faults.memory import slow
from tests.receiver import Arrival, accept
from tests.schema.rows import column, value

pytestmark = pytest.mark.timeout(180)

SLOTS = 64
BLOCKED_S = 2 * LEASE_S
# A call that does not return, in the thread of the loop: a handler of a signal runs there.
_BLOCKS = f"import signal, time; signal.signal(signal.SIGUSR1, lambda *_: time.sleep({BLOCKED_S}))"


@pytest.mark.quick
async def test_without_descriptors_attempts_fail_with_a_reason_and_all_is_delivered(
    bench: Bench, report: Report
) -> None:
    bench.receiver.answer = slow
    await bench.insert(200)
    process = bench.start("ulimit -n 48; exec")
    await bench.all_done(process)
    details = await column(bench.connection, "SELECT DISTINCT detail FROM outbox.attempt")
    assert any("Too many open files" in detail for detail in details), details
    recovery_s = await bench.recovers()
    assert await bench.ends(process) == 0
    report(await bench.judged(), recovery_s, BACK_S)


async def test_a_process_that_stands_still_longer_than_its_lease_goes_on_and_loses_nothing(
    bench: Bench, report: Report
) -> None:
    bench.receiver.answer = slow
    await bench.insert(300)
    process = bench.start()
    await bench.receiver.wait_for(50)
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 2)  # the fault itself
    process.send_signal(signal.SIGCONT)
    recovery_s = await bench.recovers()
    await bench.all_done(process)
    assert await bench.ends(process) == 0
    report(await bench.judged(), recovery_s, BACK_S)


@pytest.mark.quick
async def test_what_a_blocked_loop_held_is_delivered_by_another_replica_before_the_block_ends(
    bench: Bench, report: Report
) -> None:
    (bench.nest.path / "sitecustomize.py").write_text(_BLOCKS)
    unblocked = asyncio.Event()

    async def answer(arrival: Arrival) -> web.StreamResponse:
        if arrival.headers["X-Replica"] == "blocked":
            await unblocked.wait()
        return await accept(arrival)

    bench.receiver.answer = answer
    # More than the slots: those that wait for one must not be sent after the block either.
    await bench.insert(300)
    blocked = bench.start(name="blocked", modules=[bench.nest.path])
    await bench.receiver.wait_arrived(SLOTS)
    blocked.send_signal(signal.SIGUSR1)
    since_s = time.monotonic()
    other = bench.start(name="other")
    await bench.all_done(other, within_s=BLOCKED_S)
    recovery_s = time.monotonic() - since_s
    unblocked.set()
    await bench.says("lease_lost")
    await bench.recovers()
    assert [await bench.ends(each) for each in (blocked, other)] == [0, 0]
    report(await bench.judged(), recovery_s, BLOCKED_S)


@pytest.mark.quick
async def test_a_resolver_that_never_answers_holds_up_its_own_names_only(bench: Bench, report: Report) -> None:
    file = bench.nest.path / "resolv.conf"
    file.write_text("nameserver 127.0.0.1\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 53))
        shell = f"exec unshare --mount sh -c 'mount --bind {file} /etc/resolv.conf && exec \"$@\"' sh"
        urls = {f"hangs-{number}": f"https://hangs-{number}.example/" for number in range(20)}
        process = bench.start(shell, urls=urls)
        for name in urls:
            await bench.insert(5, destination=name)
        await bench.insert(500)
        await bench.all_done(process)
        recovery_s = await bench.recovers()
        async with asyncio.timeout(30):
            while not await column(bench.connection, "SELECT 1 FROM outbox.attempt"):
                await asyncio.sleep(0.1)
    faults = await column(bench.connection, "SELECT DISTINCT error_class FROM outbox.attempt")
    assert {*faults} <= {"connect", "deadline", "dns"}
    assert await value(bench.connection, "SELECT count(*) FROM outbox.job WHERE status = 'dead'") == 0
    assert await bench.ends(process) == 0
    report(await bench.judged(), recovery_s, BACK_S)


def fakes_time() -> str:
    """The library that does."""
    libraries = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    assert libraries, "no libfaketimeMT.so.1; Debian: apt-get install faketime"
    return str(libraries[0])


@pytest.mark.parametrize("jump", [pytest.param("+1d", marks=pytest.mark.quick), "-1d"])
async def test_a_clock_that_jumps_a_day_changes_the_time_in_signatures_and_nothing_else(
    bench: Bench, report: Report, jump: str
) -> None:
    clock = bench.nest.path / "clock"
    clock.write_text("+0\n")
    fake = {
        "LD_PRELOAD": fakes_time(), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    process = bench.start(environment=fake)
    await bench.insert(100)
    await bench.all_done(process)
    clock.write_text(f"{jump}\n")
    recovery_s = await bench.recovers()
    await bench.insert(100)
    await bench.all_done(process)
    stamps = [int(each.headers["webhook-timestamp"]) for each in bench.receiver.answered]
    assert 86_000 < abs(stamps[-1] - stamps[0]) < 87_000
    assert await value(bench.connection, "SELECT max(attempts) FROM outbox.job") == 1
    assert len(bench.receiver.answered) == 201
    assert await bench.ends(process) == 0
    report(await bench.judged(), recovery_s, BACK_S)


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param("exec 2>/dev/full; exec", marks=pytest.mark.quick),
        "exec 2>&-; exec",
        pytest.param("mkfifo pipe; sleep 9 <pipe & exec 2>pipe; kill $!; exec", marks=pytest.mark.quick),
    ],
    ids=["a full disk", "closed", "a pipe that nobody reads any more"],
)
async def test_a_log_that_cannot_be_written_holds_up_no_delivery(bench: Bench, report: Report, shell: str) -> None:
    process = bench.start(shell, environment={"RELAY_LOG_LEVEL": "debug"})
    await bench.insert(100)
    await bench.all_done(process)
    recovery_s = await bench.recovers()
    assert await bench.ends(process) == 0
    assert '"event"' not in bench.log
    report(await bench.judged(), recovery_s, BACK_S)


@contextmanager
def collector(trouble: Literal["hangs", "is gone"]) -> Iterator[socket.socket]:
    """A collector that takes every connection and says nothing, or takes none."""
    with socket.socket() as listener:
        listener.settimeout(0)
        listener.bind(("127.0.0.1", 0))
        if trouble == "hangs":
            listener.listen(128)
        yield listener


@pytest.mark.parametrize("trouble", [pytest.param("hangs", marks=pytest.mark.quick), "is gone"])
async def test_a_collector_in_trouble_holds_up_no_delivery_and_no_end(
    bench: Bench, report: Report, trouble: Literal["hangs", "is gone"]
) -> None:
    with collector(trouble) as listener:
        # One that hangs is waited for much longer than the test may take.
        timeout_s = {"hangs": "600", "is gone": "1"}[trouble]
        told = {"ENDPOINT": f"http://127.0.0.1:{listener.getsockname()[1]}", "TIMEOUT": timeout_s}
        environment = {f"OTEL_EXPORTER_OTLP_{name}": text for name, text in told.items()}
        process = bench.start(environment={**environment, "OTEL_BSP_SCHEDULE_DELAY": "50"})
        await bench.insert(300)
        await bench.all_done(process)
        recovery_s = await bench.recovers()
        if trouble == "hangs":
            listener.accept()[0].close()  # it was asked
        else:
            await bench.says("traces_not_exported")
        assert await bench.ends(process) == 0
    assert await value(bench.connection, "SELECT max(attempts) FROM outbox.job") == 1
    report(await bench.judged(), recovery_s, BACK_S)
