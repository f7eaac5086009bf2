"""Names to addresses, by the operating system's resolver, in threads that nothing waits for."""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Sequence

FRESH_S = 5.0  # for so long an answer serves connections that are made after it


class Resolver:
    """Looks up each name once for everybody who asks meanwhile, and for a moment after.

    A thread for each look-up, since a name that hangs must hold up no other name; as look-ups are shared, there
    are never more than names. They are daemons: the process ends without them.
    """

    def __init__(self) -> None:
        self._shared: dict[str, asyncio.Future[Sequence[str]]] = {}

    async def resolve(self, host: str) -> Sequence[str]:
        """The addresses of `host` (ASCII), the best first (RFC 6724). Raises OSError."""
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            return await asyncio.shield(self._shared.get(host) or self._look_up(host))

    def _look_up(self, host: str) -> asyncio.Future[Sequence[str]]:
        loop = asyncio.get_running_loop()
        found = loop.create_future()

        def tell(outcome: Sequence[str] | Exception) -> None:
            if isinstance(outcome, Exception):
                del self._shared[host]
                found.set_exception(outcome)
                found.exception()  # Whoever asked may have given up meanwhile; asyncio would log that nobody heard.
            else:
                loop.call_later(FRESH_S, self._shared.pop, host)
                found.set_result(outcome)

        def look_up() -> None:
            outcome = _addresses(host)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(tell, outcome)

        threading.Thread(target=look_up, name=f"dns {host}", daemon=True).start()
        self._shared[host] = found
        return found


def _addresses(host: str) -> Sequence[str] | Exception:
    try:
        # As bytes, or the idna codec raises UnicodeError for a label of 64 letters.
        found = socket.getaddrinfo(host.encode("ascii"), None, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    except Exception as fault:  # noqa: BLE001 - whoever waits is to hear of it
        return fault
    return [str(address[0]) for *_, address in found]
