"""A receiver's bytes, in whatever pieces: an answer, a fault of one line, or not enough yet; and bounded memory."""

import gzip
import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from relay.http.reader import BODY_BYTES, HEAD_BYTES, MalformedError, Reader
from relay.model import Answer, Destination, ErrorClass, Fault, Job, Result
from relay.rules.decide import decide
from tests.fuzz.case import came_to

# In how many ways each text is cut; a parser that stops in the middle is another one at each place.
WAYS = 24
_DESTINATION = Destination("shop", "http://127.0.0.1/")
_JOB = Job(1, "shop", "t", None, "k", "text/plain", b"", {}, attempts=1, claims=1)

_ENDS = st.sampled_from([b"\r\n"] * 60 + [b"\n", b"\r", b"\r\r\n", b"", b"\0\r\n"])
_STATUS = st.sampled_from(
    [b"%d" % number for number in range(100, 600, 7)]
    + [b"100", b"101", b"103", b"204", b"304", b"410", b"429", b"503"] * 4
    + [b"", b"0", b"99", b"1000", b"99999999999", b"-1", b"2 0", b"OK", b"\xff"]
)
_VERSION = st.sampled_from(
    [b"HTTP/1.1"] * 40
    + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"HTTP/1.11", b"ICE/1.0", b"RTSP/1.0", b""]
)
_FRAMING = [
    b"Content-Length: 2", b"Content-Length: 0", b"Content-Length: 5000", b"Content-Length: 18446744073709551616",
    b"Content-Length: -1", b"Content-Length: 2, 2", b"Content-Length: 0x2", b"Content-Length:", b"content-length: 2",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: identity",
    b"Connection: close", b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c", b"Trailer: X",
    b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"Content-Encoding: br", b"Proxy-Connection: close",
    b"Retry-After: 7", b"Retry-After: 1e9", b"Retry-After: Mon, 30 Feb 2026 00:00:00 GMT", b"Date: nonsense",
    b"Location: //[::1", b"Location: http://a\x00b/", b"Location: \xff", b"X-A: \x00", b" folded", b"\tfolded",
    b"X" * 9000 + b": y", b"X: " + b"y" * 40_000,
]  # fmt: skip
_HEADER = st.one_of(
    st.sampled_from(_FRAMING),
    st.from_regex(rb"\A[A-Za-z0-9-]{1,12}: [!-~ \t]{0,20}\Z"),
    st.tuples(st.binary(max_size=12), st.binary(max_size=20)).map(b": ".join),
)
_BOMB = gzip.compress(bytes(2_000_000))
_BODY = st.one_of(
    st.sampled_from([b"", b"ok", b"x" * 5000, _BOMB, gzip.compress(b"ok"), b"\x1f\x8b", b"2\r\nok\r\n0\r\n\r\n"]),
    st.binary(max_size=30),
    st.lists(
        st.tuples(st.sampled_from([b"2", b"02", b"2;a=b", b"2 ", b"-2", b"zz", b"ffffffffffffffff", b"0"]), _ENDS)
        .map(lambda two: two[0] + two[1] + b"ok\r\n"),
        max_size=4,
    ).map(b"".join),
)  # fmt: skip


@st.composite
def answer(draw: st.DrawFn) -> bytes:
    """Something like an answer of HTTP/1.1."""
    lines = [b" ".join((draw(_VERSION), draw(_STATUS), draw(st.sampled_from([b"OK", b"", b"\xff\x00"]))))]
    lines += draw(st.lists(_HEADER, max_size=5))
    return b"".join(line + draw(_ENDS) for line in (*lines, b"")) + draw(_BODY)


@st.composite
def noise(draw: st.DrawFn) -> bytes:
    """Answers in a row, with some bytes of them changed."""
    text = b"".join(draw(st.lists(answer(), min_size=1, max_size=3)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.binary(max_size=3)) + text[place + draw(st.integers(0, 3)) :]
    return text


def pieces(text: bytes, cuts: int) -> list[bytes]:
    """The text cut at places that `cuts` decides: up to 8 of them."""
    dice = random.Random(cuts)
    places = sorted(dice.randrange(len(text) + 1) for _ in range(cuts % 9))
    return [text[start:end] for start, end in pairwise([0, *places, len(text)]) if end > start]


def _read(reader: Reader, segments: list[bytes]) -> Result | None:
    for segment in segments:
        try:
            if reader.feed(segment):
                return reader.answer()
        except MalformedError as fault:
            assert not reader.keep
            return Fault(ErrorClass.PROTOCOL, str(fault))
    return reader.answer() if reader.status else None


def _bounded(answer: Answer) -> None:
    assert len(answer.body) <= BODY_BYTES
    assert sum(len(name) + len(value) for name, value in answer.headers.items()) <= HEAD_BYTES


@given(noise(), st.lists(st.integers(1, 2**32), min_size=WAYS - 1, max_size=WAYS - 1))
def check(text: bytes, cuts: list[int]) -> None:
    """One connection's bytes, at once and cut in other ways, up to what becomes of the job."""
    for each in (0, *cuts):
        _judge(text, each)


def _judge(text: bytes, cuts: int) -> None:
    result = _read(Reader(), pieces(text, cuts))
    came_to("unfinished" if result is None else "answers" if isinstance(result, Answer) else "faults")
    if result is None:
        return
    if isinstance(result, Answer):
        _bounded(result)
    settlement = decide(_JOB, result, _DESTINATION, duration_s=0.0, rng=0.5, now_epoch_s=1.8e9)
    assert 0 <= settlement.delay_s <= 2 * 86_400
    if settlement.failure is not None:
        assert settlement.failure.detail.isprintable()
        assert len(settlement.failure.detail) <= 500
