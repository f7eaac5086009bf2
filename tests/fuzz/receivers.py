"""The sender against sockets that answer with anything: an answer or a fault, and nothing of it in the next answer."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from relay.model import Answer, Destination, ErrorClass, Fault
from relay.sender import Sender
from tests.fuzz.answers import noise, pieces
from tests.fuzz.case import Check, came_to

End = Literal["close", "reset", "stay"]
_BODY = b'{"order": 42}'


class Stage:
    """A server that plays `script` to a request for /noise, then does `end`; every other path gets its name back."""

    def __init__(self) -> None:
        self.script: list[bytes] = []
        self.end: End = "close"
        self.played = asyncio.Event()
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.open += 1
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
                await reader.readexactly(len(_BODY))
                if path == b"/noise" and not await self._play(writer):
                    return
                if path != b"/noise":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client's right, and the end of the run
        finally:
            self.played.set()
            writer.close()
            self.open -= 1

    async def _play(self, writer: asyncio.StreamWriter) -> bool:
        for piece in self.script:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if self.end == "reset":
            writer.transport.abort()
        self.played.set()
        return self.end == "stay"


@contextmanager
def opened() -> Iterator[Check]:
    """A loop, a server and a sender with its kept connections for all cases."""
    with asyncio.Runner() as runner:
        stage, sender, names = Stage(), Sender(), itertools.count()
        server = runner.run(asyncio.start_server(stage.serve, "127.0.0.1", 0))
        origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        async def case(script: list[bytes], end: End) -> None:
            stage.script, stage.end = script, end
            stage.played.clear()
            noisy = Destination("shop", f"{origin}/noise", deadline_s=0.05 if end == "stay" else 5.0)
            result = await sender.send(noisy, [], _BODY)
            assert isinstance(result, Answer | Fault)
            assert isinstance(result, Answer) or result.error_class is not ErrorClass.INTERNAL
            came_to("answers" if isinstance(result, Answer) else f"{result.error_class} faults")
            await stage.played.wait()
            # What is under way arrives: the loop looks at its sockets once a turn.
            for _ in range(3):
                await asyncio.sleep(0)
            path = f"/{next(names)}"
            result = await sender.send(Destination("shop", origin + path, deadline_s=30.0), [], _BODY)
            assert isinstance(result, Answer), result
            assert (result.status, result.body) == (200, path.encode())
            assert stage.open <= 2

        @given(noise(), st.integers(0, 8), st.sampled_from(["close", "close", "close", "reset", "stay"]))
        def check(text: bytes, cuts: int, end: End) -> None:
            runner.run(case(pieces(text, cuts), end))

        yield check
        runner.run(sender.__aexit__(None, None, None))
        server.close()
