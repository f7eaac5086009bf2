"""How a replica stops: no new work, then what is in flight, then the outcomes that are not written yet."""

import asyncio
import logging
import time
from collections.abc import Mapping

from relay.dispatch import Dispatcher
from relay.loop import Loop
from relay.settle import Settler
from relay.telemetry import event

# What is left after the drain to write the last outcomes.
_SETTLE_S = 4.0
_CLAIMING = "claim"
_SETTLING = "settle"
# Goes on to the end: what is in flight must stay ours.
_RENEWING = "renew"


async def stop(
    loops: Mapping[str, Loop],
    tasks: Mapping[str, asyncio.Task[None]],
    *,
    dispatcher: Dispatcher,
    settler: Settler,
    drain_s: float,
) -> None:
    """Ends the loops and their tasks. What is in flight may end within `drain_s` seconds; the rest is released."""
    # First no new work: the claim under way ends, and what it brings is released.
    drained_s = time.monotonic() + drain_s
    for name in loops.keys() - {_SETTLING, _RENEWING}:
        loops[name].stop()
    dispatcher.stop()
    await asyncio.wait([tasks[_CLAIMING]], timeout=drain_s)
    tasks[_CLAIMING].cancel()
    # Then what is in flight ends, or is cut off and released, while its leases are renewed.
    cut_off = await dispatcher.drain(max(0.0, drained_s - time.monotonic()))
    if cut_off:
        event(logging.WARNING, "drain_cut_off", jobs=cut_off, drain_s=drain_s)
    await _write_the_rest(settler, loops[_SETTLING], tasks[_SETTLING])
    for task in tasks.values():
        task.cancel()


async def _write_the_rest(settler: Settler, loop: Loop, task: asyncio.Task[None]) -> None:
    deadline_s = time.monotonic() + _SETTLE_S
    while not settler.empty and time.monotonic() < deadline_s:
        await asyncio.sleep(0.01)
    if not settler.empty:
        event(logging.ERROR, "outcomes_not_written", advice="the database was away; their leases will lapse")
    loop.stop()
    await asyncio.wait([task], timeout=_SETTLE_S)
