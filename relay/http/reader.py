"""Reads answers from the bytes of a connection: HTTP/1.1 by llhttp, and no more of it than we keep."""

import zlib

import httptools

from relay.model import Answer

BODY_BYTES = 4096  # of a body that are kept, as they came and again when decompressed
HEAD_BYTES = 32_768  # of header names and values; Node's limit is 16 KiB
READ_BYTES = 65_536  # of one answer with all its framing: chunks, trailers and interim answers may have no end

_SWITCHING_PROTOCOLS = 101
_NO_CONTENT = 204


class MalformedError(Exception):
    """What came is no answer by RFC 9112. The sentence has none of the receiver's text in it."""


class Reader:
    """The answers of one connection, one after the other.

    `status` is 0 until the head of the final answer is complete. `began` says whether anything came at all,
    `keep` whether the connection may carry another request.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # A bare LF, a folded header, a blank after a chunk's size: RFC 9112 lets a client read all of these.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.expect()

    def expect(self) -> None:
        """The next bytes are the answer to a new request."""
        self.status = 0
        self.began = False
        self.keep = False
        self._read_bytes = 0
        self._complete = False
        self._start()

    def feed(self, data: bytes) -> bool:
        """Whether the answer is complete, or enough of it. Raises MalformedError."""
        self.began = True
        self._read_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keep = False
            if not self._complete:
                raise MalformedError(self._fault(error)) from None
        if self._complete or len(self._body) >= BODY_BYTES:
            return True
        if self._read_bytes > READ_BYTES and not self.status:
            raise MalformedError(f"the answer's head is not complete after {READ_BYTES} bytes")
        return self._read_bytes > READ_BYTES

    def answer(self) -> Answer:
        """What was read; once there is a status. A body that was cut is evidence all the same."""
        encoding = self._headers.get("content-encoding", "")
        return Answer(self.status, self._headers, _decoded(self._body, encoding) if encoding else self._body)

    def _start(self) -> None:
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._body = b""

    def _fault(self, error: Exception) -> str:
        if self._head_bytes > HEAD_BYTES:
            return f"the answer's headers are longer than {HEAD_BYTES} bytes"
        return f"the answer is not HTTP/1.1: {' '.join(str(error).split())[:200]}"

    def _may_go_on(self) -> bool:
        # A 204 must announce no body (RFC 9110, section 8.6). If one comes, it would be taken for the next answer.
        announced = self._headers.get("content-length", "0") != "0" or "transfer-encoding" in self._headers
        if self.status == _SWITCHING_PROTOCOLS or (self.status == _NO_CONTENT and announced):
            return False
        return self._parser.should_keep_alive()

    # What follows is called by the parser; what it raises ends `feed_data`.

    def on_message_begin(self) -> None:
        """More than the one answer that was asked for is no answer to anything."""
        if self._complete:
            raise MalformedError

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which nobody here needs."""
        if self.status:
            return
        self._head_bytes += len(name) + len(value) + len(": \r\n")
        if self._head_bytes > HEAD_BYTES:
            raise MalformedError
        self._headers[name.lower().decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """From here on there is an answer, whatever happens to its body."""
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._body += data[: BODY_BYTES - len(self._body)]

    def on_message_complete(self) -> None:
        """The end of the answer, or of an interim one, which is skipped (RFC 9110, section 15.2)."""
        if self.status < 200 and self.status != _SWITCHING_PROTOCOLS:
            self.status = 0
            self._start()
            return
        self._complete = True
        self.keep = self._may_go_on()


def _decoded(body: bytes, encoding: str) -> bytes:
    if encoding.lower() not in {"gzip", "x-gzip", "deflate"}:
        return body
    try:
        # 32 lets zlib tell gzip from deflate; the limit is on what comes out, so a bomb stays small.
        return zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(body, BODY_BYTES)
    except zlib.error:
        return body
