"""POSTs to one host over kept connections."""

import asyncio

from relay.http.connection import Connection
from relay.http.dial import Dialler
from relay.model import Answer, ErrorClass, Fault, Result

IDLE_S = 30.0  # a kept connection without work is closed after this


class Transport:
    """Connections to one host, for destinations that agree on TLS, proxy and egress policy.

    How many there are is the dispatcher's business: a request takes a kept one, or makes one.
    """

    def __init__(self, dialler: Dialler) -> None:
        self._loop = asyncio.get_running_loop()
        self._dialler = dialler
        # Since when (the loop's clock) each connection is idle. The one used last is the next to be used, so what
        # a burst has left over grows old at the front.
        self._idle: dict[Connection, float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def post(self, head: bytes, body: bytes, *, connect_timeout_s: float, until_s: float) -> Result:
        """Send one request and return the answer to it, or the fault that came instead.

        Raises TimeoutError, whose text is the phase that was reached, when the loop's clock passes `until_s`. A
        cancelled call closes its connection.
        """
        kept = self._take()
        if kept is not None:
            result = await kept.post(head, body, until_s)
            if kept.answered or isinstance(result, Answer):
                return self._keep(kept, result)
            # It died without a byte of an answer: most likely the receiver's keep-alive ran out as we wrote.
            # Whether it read the request can't be known, so this is no proof that nothing was sent; repeating
            # is safe because the idempotency key is the same (RFC 9110, section 9.2.2).
        fresh = await self._connect(connect_timeout_s, until_s)
        if isinstance(fresh, Fault):
            return fresh
        return self._keep(fresh, await fresh.post(head, body, until_s))

    def close(self) -> None:
        """Close what is kept, and what is in flight once it has ended."""
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        if self._sweep is not None:
            self._sweep.cancel()

    def _take(self) -> Connection | None:
        while self._idle:
            connection, _ = self._idle.popitem()
            if not connection.closed:
                return connection
        return None

    def _keep(self, connection: Connection, result: Result) -> Result:
        if self._closed:
            connection.close()
        elif not connection.closed:
            self._idle[connection] = self._loop.time()
            if self._sweep is None:
                self._sweep = self._loop.call_later(IDLE_S, self._close_idle)
        return result

    def _close_idle(self) -> None:
        self._sweep = None
        while self._idle:
            connection, since_s = next(iter(self._idle.items()))
            left_s = since_s + IDLE_S - self._loop.time()
            if left_s > 0:
                self._sweep = self._loop.call_later(left_s, self._close_idle)
                return
            del self._idle[connection]
            connection.close()

    async def _connect(self, connect_timeout_s: float, until_s: float) -> Connection | Fault:
        connect_until_s = self._loop.time() + connect_timeout_s
        try:
            async with asyncio.timeout_at(min(connect_until_s, until_s)):
                return await self._dialler.connect()
        except TimeoutError:
            if until_s <= connect_until_s:
                raise TimeoutError("while connecting") from None
            return Fault(ErrorClass.CONNECT, "no connection within the connect timeout (name, TCP and TLS)")
