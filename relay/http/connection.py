"""One connection to a receiver: a request out, its answer back, and whether it may be used again."""

import asyncio
import os
import socket
import ssl
import struct

from relay.http.reader import MalformedError, Reader
from relay.model import ErrorClass, Fault, Result

# What is given to the event loop at once. The rest of a long body waits here, uncopied, until it is wanted.
PIECE_BYTES = 65_536
# struct linger of <sys/socket.h>, on and for 0 s: a close is a reset (ABORT of RFC 9293, section 3.10.5).
_RESET = struct.pack("ii", 1, 0)


class Connection(asyncio.Protocol):
    """An asyncio protocol, connected by `relay.http.dial`, for one `post` at a time.

    Whatever ends a `post` early ends the connection, at once: a polite close would wait for a receiver that
    does not read, for ever. So does anything that a receiver sends unasked.
    """

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = Reader()
        self._result: asyncio.Future[Result] | None = None
        self._unsent = memoryview(b"")
        self._paused = False

    @property
    def closed(self) -> bool:
        """Whether it can carry nothing any more."""
        return self._transport.is_closing()

    @property
    def answered(self) -> bool:
        """Whether anything came since the last request began."""
        return self._reader.began

    @property
    def phase(self) -> str:
        """How far the request is, for a sentence."""
        if self._reader.status:
            return "while reading the answer's body"
        return "while sending the request" if self._sending else "while waiting for the answer"

    async def post(self, head: bytes, body: bytes, until_s: float) -> Result:
        """Write `head` and `body`; return the answer to them, or the fault that came instead.

        An answer counts from when its head is complete, its body may be cut. Raises TimeoutError, whose text
        is the phase, when the loop's clock passes `until_s`.
        """
        if self.closed:
            return Fault(ErrorClass.READ, "the connection broke before the request: closed by the receiver")
        self._reader.expect()
        self._result = self._loop.create_future()
        limit = self._loop.call_at(until_s, self._expire)
        try:
            self._unsent = memoryview(body)[PIECE_BYTES:]
            self._transport.write(head + body[:PIECE_BYTES])
            self._write_on()
            result = await self._result
        except BaseException:
            self._forget()
            self.abort()
            raise
        finally:
            self._result = None
            limit.cancel()
        if self._sending or not self._reader.keep:
            self.abort()
        # Even an empty piece of a body keeps all of it in memory, for as long as this connection is kept.
        self._unsent = memoryview(b"")
        return result

    def abort(self) -> None:
        """Close now, with whatever is still to be written."""
        self._transport.abort()

    def _forget(self) -> None:
        """Make the kernel drop what it has not sent yet.

        Left to itself it goes on for minutes after a close, and a request that was given up arrives after the one that
        took its place, or after its successor's.
        """
        if not self.closed:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def close(self) -> None:
        """Close an idle connection, politely where it is TLS."""
        self._transport.close()

    @property
    def _sending(self) -> bool:
        return self._paused or len(self._unsent) > 0

    def _write_on(self) -> None:
        while self._unsent and not self._paused and not self.closed:
            piece, self._unsent = self._unsent[:PIECE_BYTES], self._unsent[PIECE_BYTES:]
            self._transport.write(piece)

    def _expire(self) -> None:
        if self._result is not None and not self._result.done():
            self._result.set_exception(TimeoutError(self.phase))

    # What follows is called by the event loop.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        """Connected, with TLS where there is any."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some bytes of an answer, or bytes that nobody asked for."""
        if self._result is None or self._result.done():
            self.abort()
            return
        try:
            if self._reader.feed(data):
                self._result.set_result(self._reader.answer())
        except MalformedError as fault:
            self._result.set_result(Fault(ErrorClass.PROTOCOL, str(fault)))

    def eof_received(self) -> None:
        """The receiver says no more; left to itself asyncio would first write what waits to be written."""
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, whoever wanted it."""
        if self._result is None or self._result.done():
            return
        if self._reader.status:
            # All that decides has arrived, and the body is only evidence for a person. Repeating what was
            # answered 2xx would turn a bad network into duplicates.
            self._result.set_result(self._reader.answer())
            return
        kind = ErrorClass.WRITE if self._sending else ErrorClass.READ
        if isinstance(exc, ssl.SSLError):  # by TLS 1.3 a client certificate is refused after the handshake
            kind = ErrorClass.TLS
        self._result.set_result(Fault(kind, f"the connection broke {self.phase}: {reason(exc)}"))

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self._write_on()


def reason(error: BaseException | None) -> str:
    """Why a connection failed, in the operating system's or OpenSSL's words."""
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message
        case ssl.SSLError():
            return error.reason or str(error)
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case OSError():
            return error.strerror or str(error) or type(error).__name__
    return "closed by the receiver"
