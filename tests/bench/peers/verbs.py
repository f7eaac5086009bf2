"""What every side of the benchmark can be told: prepare DSN | insert DSN JOBS BYTES | probe DSN | run DSN URL SLOTS."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

#: Inserts so many jobs with this payload, a string in JSON, and returns when they are committed.
Put = Callable[[int, str], Awaitable[None]]


async def obey(
    *,
    prepare: Callable[[str], Awaitable[object]],
    producer: Callable[[str], AbstractAsyncContextManager[Put]],
    run: Callable[[str, str, int], Awaitable[None]],
) -> None:
    """Does what the command line says. `run` delivers until SIGTERM."""
    verb, dsn, *rest = sys.argv[1:]
    if verb == "prepare":
        await prepare(dsn)
    elif verb == "insert":
        async with producer(dsn) as put:
            await put(int(rest[0]), '"' + "x" * (int(rest[1]) - 2) + '"')
    elif verb == "probe":
        async with producer(dsn) as put:
            await _probe(put)
    else:
        await run(dsn, rest[0], int(rest[1]))


async def _probe(put: Put) -> None:
    """One job for each line of input; answers with the monotonic clock, which processes share, once it is committed."""
    while await asyncio.to_thread(sys.stdin.readline):
        await put(1, '"probe"')
        print(time.monotonic(), flush=True)
