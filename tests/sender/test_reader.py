"""An answer is the same in whatever pieces it arrives, and is never kept whole when it is long."""

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.http.reader import BODY_BYTES, HEAD_BYTES, READ_BYTES, MalformedError, Reader
from relay.model import Answer

ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nX: y\r\n\r\nHTTP/1.1 422 X\r\nA: b\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 503 X\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 204 X\r\n\r\n",
    b"HTTP/1.1 304 X\r\nContent-Length: 100\r\n\r\n",
    b"HTTP/1.1 200 OK\nX: a\n b\nContent-Length: 0\n\n",
]
MALFORMED = [
    b"SSH-2.0-OpenSSH_9.2p1\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * HEAD_BYTES + b"\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * HEAD_BYTES + b"Content-Length: 0\r\n\r\n",
]


def read(reader: Reader, segments: list[bytes]) -> Answer | None:
    """The answer that these segments make; None where they make none."""
    reader.expect()
    for segment in segments:
        if reader.feed(segment):
            return reader.answer()
    return None


def cut(text: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted({place % len(text) for place in places} - {0}), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 2**16)))
def test_an_answer_is_the_same_in_any_segments(answer: bytes, places: list[int]) -> None:
    whole, pieces = Reader(), Reader()
    expected = read(whole, [answer])
    assert expected is not None
    assert read(pieces, cut(answer, places)) == expected
    assert whole.keep
    assert pieces.keep


@given(st.sampled_from(MALFORMED), st.lists(st.integers(0, 2**16), max_size=20))
def test_what_is_no_answer_is_none_in_any_segments(text: bytes, places: list[int]) -> None:
    with pytest.raises(MalformedError):
        read(Reader(), cut(text, places))


@given(st.lists(st.sampled_from(ANSWERS), min_size=2, max_size=5))
def test_answers_on_one_connection_know_nothing_of_each_other(answers: list[bytes]) -> None:
    kept = Reader()
    assert [read(kept, [answer]) for answer in answers] == [read(Reader(), [answer]) for answer in answers]


def test_an_interim_answer_leaves_nothing_behind() -> None:
    answer = read(Reader(), [ANSWERS[1]])
    assert answer == Answer(422, {"a": "b", "content-length": "2"}, b"no")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_none_and_never_a_bug(noise: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with contextlib.suppress(MalformedError):
            read(Reader(), [start + noise])


def test_a_long_body_is_kept_up_to_its_bound_and_then_enough() -> None:
    reader = Reader()
    answer = read(reader, [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x" * 300_000])
    assert answer is not None
    assert answer.body == b"x" * BODY_BYTES
    assert not reader.keep


def test_framing_without_end_is_enough_at_its_bound() -> None:
    reader = Reader()
    reader.expect()
    assert not reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: ")
    read_bytes = 0
    while not reader.feed(b"y" * 1024):
        read_bytes += 1024
    assert READ_BYTES - 2048 < read_bytes <= READ_BYTES
    assert (reader.answer().body, reader.keep) == (b"ok", False)
