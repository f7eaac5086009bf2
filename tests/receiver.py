"""A receiver on a real socket that records what arrives and answers as the test says."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web


@dataclass
class Arrival:
    """One request; times are the monotonic clock's (s); `ended` and `status` are None until answered."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    started: float
    ended: float | None = None
    status: int | None = None

    @property
    def sequence(self) -> int:
        """The job's id, from `Relay-Sequence`."""
        return int(self.headers["Relay-Sequence"])

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self.headers["Idempotency-Key"]


Answer = Callable[[Arrival], Awaitable[web.StreamResponse]]


async def accept(_arrival: Arrival) -> web.StreamResponse:
    """The usual answer: 204."""
    return web.Response(status=204)


def status(number: int, **headers: str) -> Answer:
    """An answer with this status for every request; `Retry_After="5"` becomes the header `Retry-After: 5`."""

    async def answer(_arrival: Arrival) -> web.StreamResponse:
        return web.Response(status=number, headers={name.replace("_", "-"): text for name, text in headers.items()})

    return answer


@dataclass
class Receiver:
    """An HTTP server on 127.0.0.1 as an async context manager. `answer` may be replaced at any time."""

    answer: Answer = accept
    port: int = 0
    arrivals: list[Arrival] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition, repr=False)
    _runner: web.AppRunner | None = field(default=None, repr=False)

    def url(self, path: str = "/hook") -> str:
        """The address of `path` on this receiver."""
        return f"http://127.0.0.1:{self.port}{path}"

    async def wait_for(self, number: int) -> list[Arrival]:
        """Wait (30 s at most) until `number` requests have been answered, and return the answered ones."""
        return await self.wait_until(lambda arrivals: len(arrivals) >= number)

    async def wait_until(self, enough: Callable[[list[Arrival]], bool], timeout_s: float = 30.0) -> list[Arrival]:
        """Wait until the answered requests satisfy `enough`, and return them. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: enough(self.answered))
        return self.answered

    async def wait_arrived(self, number: int) -> list[Arrival]:
        """Wait (30 s at most) until `number` requests have arrived, answered or not."""
        async with asyncio.timeout(30.0), self._changed:
            await self._changed.wait_for(lambda: len(self.arrivals) >= number)
        return list(self.arrivals)

    @property
    def answered(self) -> list[Arrival]:
        """The requests that have been answered, in order of arrival."""
        return [arrival for arrival in self.arrivals if arrival.ended is not None]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        started = time.monotonic()
        arrival = Arrival(request.path, request.headers.copy(), await request.read(), started)
        self.arrivals.append(arrival)
        await self._notify()
        response = await self.answer(arrival)
        arrival.status = response.status
        arrival.ended = time.monotonic()
        await self._notify()
        return response

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
