"""A producer's rows: refused by a constraint that has a name, or delivered byte for byte by a real replica."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors, sql
from psycopg.types.json import Jsonb

import relay
from relay import __version__
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from relay.rules.request import valid_traceparent, valid_tracestate
from tests.fuzz.case import NASTY, Check, came_to, texts

MIB = 1_048_576
_LOGIN = "fuzz_producer"
_PATIENCE_S = 120
# What the table refuses without one of its own constraints: no text of JSON, no text at all, out of the type's range.
_BY_TYPE = (
    errors.InvalidTextRepresentation, errors.UntranslatableCharacter, errors.NumericValueOutOfRange,
    errors.StatementTooComplex,
)  # fmt: skip


def _sized(text: str, limit: int) -> st.SearchStrategy[str]:
    return st.integers(limit - 1, limit + 1).map(lambda size: (text * size)[:size])


_tokens = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", fullmatch=True)
_visible = st.from_regex(r"[!-~]([ -~\t]{0,20}[!-~])?", fullmatch=True)
_key_texts = st.from_regex(r"[!#-+\-/:<-\[\]-~]{1,30}", fullmatch=True)
_headers: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(_tokens, _visible, max_size=4),
    st.dictionaries(_tokens | texts, st.one_of(_visible, texts, st.integers(), st.none()), max_size=3),
    st.integers(7990, 8200).map(lambda size: {"X-A": "v" * size}),
    st.integers(100, 400).map(lambda count: {f"X-{number}": "v" for number in range(count)}),
    st.sampled_from([[], "x", 1, None]),
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
_payloads = st.one_of(
    _json.map(json.dumps), _json.map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)), texts,
    st.sampled_from([r'"\u0000"', r'{"a": 1, "a": 2.50}', " [1e400 ] ", "[" * 99_999, "[" * 900 + "]" * 900, "{}"]),
    st.sampled_from([MIB - 2] * 1 + [10] * 20).flatmap(lambda size: _sized("é", size // 2).map('"{}"'.format)),
)  # fmt: skip
_bodies = st.one_of(
    st.binary(max_size=60), st.sampled_from([b"", b"\0", bytes(range(256)), b"\r\n\r\nPOST / HTTP/1.1"])
)
_OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "entity_key": st.one_of(st.none(), texts, st.text(max_size=30), _sized("é", 256), _sized("x", 512)),
    "headers": _headers.map(Jsonb) | st.none(),
    "idempotency_key": st.one_of(st.none(), _key_texts, texts, _sized("k", 255)),
    "run_at": st.sampled_from([None, "-infinity", "2001-01-01", "infinity", "4714-11-24 BC"]),
    "priority": st.integers(-1, 4) | st.sampled_from([None, 40_000]),
    "max_attempts": st.sampled_from([None, 1, 1000, 0, 1001, 2**40]),
    "traceparent": texts | st.from_regex(r"0[01]-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", fullmatch=True),
    "tracestate": texts | st.from_regex(r"[a-z]{1,9}=[!-+]{1,20}", fullmatch=True),
}
_right_topics = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,30}", fullmatch=True)
_topics = st.one_of(_right_topics, _right_topics, _right_topics, _right_topics, texts, _sized("t", 255))
_content = st.one_of(
    st.fixed_dictionaries({"payload": _payloads}),
    st.fixed_dictionaries({"body": _bodies, "content_type": st.one_of(_visible, texts, _sized("c", 255))}),
    st.fixed_dictionaries({"payload": _payloads, "content_type": st.none() | _visible}),
    st.fixed_dictionaries({}, optional={"payload": _payloads, "body": _bodies}),
)
_columns = st.builds(
    lambda first, content, more: {**first, **content, **more},
    st.fixed_dictionaries({"topic": _topics, "destination": st.sampled_from(["fuzz"] * 30 + [None] * 3 + NASTY[:9])}),
    _content,
    st.fixed_dictionaries({}, optional=_OPTIONAL),
)

Request = tuple[bytes, list[tuple[str, str]], bytes]


class Sink(asyncio.Protocol):
    """Takes requests apart by hand, so that no library hides what was in them; answers 204."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio has it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """As asyncio has it."""
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, rest = self._data.split(b"\r\n\r\n", 1)
            first, *lines = head.split(b"\r\n")
            headers = [(name, value) for name, _, value in (line.decode("latin-1").partition(": ") for line in lines)]
            size = int(dict(headers)["Content-Length"])
            if len(rest) < size:
                return
            self._requests.append((first, headers, rest[:size]))
            self._data = rest[size:]
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


@contextmanager
def opened() -> Iterator[Check]:
    """A database and a producer's connection; when all rows are drawn, a replica and a receiver for those let in."""
    with Nest() as nest, Postgres(nest, tcp=True, options={"fsync": "off"}) as postgres:
        dsn = postgres.create_database("fuzz")
        asyncio.run(migrate(dsn))
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute("INSERT INTO outbox.destination (name, topics) VALUES ('fuzz', '{*}')")
            owner.execute(f"CREATE ROLE {_LOGIN} LOGIN IN ROLE outbox_producer".encode())
            let_in: dict[int, dict[str, Any]] = {}
            with psycopg.connect(dsn, user=_LOGIN, autocommit=True) as producer:

                @given(_columns)
                def check(columns: dict[str, Any]) -> None:
                    _insert(producer, columns, let_in)

                yield check
            asyncio.run(_deliver(nest, dsn, owner, let_in))


def _insert(producer: psycopg.Connection[Any], columns: dict[str, Any], let_in: dict[int, dict[str, Any]]) -> None:
    statement = sql.SQL("INSERT INTO outbox.job ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(sql.Placeholder() * len(columns))
    )
    try:
        row = producer.execute(statement, list(columns.values())).fetchone()
    except errors.CheckViolation as refused:
        named = refused.diag.constraint_name or ""
        if not named.startswith("job_"):
            raise
        came_to("refused by name")
    except _BY_TYPE:
        came_to("refused by type")
    except (psycopg.DataError, UnicodeEncodeError) as error:  # NUL, half a character: the driver's own
        if getattr(error, "sqlstate", None):
            raise
        came_to("refused by the driver")
    else:
        assert row is not None
        came_to("let in")
        if columns["destination"] in ("fuzz", None):
            let_in[row[0]] = columns


async def _deliver(nest: Nest, dsn: str, owner: psycopg.Connection[Any], let_in: dict[int, dict[str, Any]]) -> None:
    requests: list[Request] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Sink(requests), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    file = nest.path / "relay.yaml"
    file.write_text(json.dumps({"destinations": {"fuzz": {"url": url, "topics": ["*"], "signed": False}}}))
    environment = {
        **os.environ,
        "RELAY_DATABASE_DSN": dsn,
        "RELAY_CONFIG": str(file),
        "PYTHONPATH": str(Path(relay.__file__).parents[1]),
    }
    replica = nest.start([sys.executable, "-m", "relay", "run"], log=nest.path / "relay.log", env=environment)
    async with asyncio.timeout(_PATIENCE_S + len(let_in) / 50):
        while len({sequence(each) for each in requests}) < len(let_in):
            await asyncio.sleep(0.1)
            assert replica.poll() is None, (nest.path / "relay.log").read_text()[-2000:]
    server.close()
    assert len(requests) == len(let_in)
    for request in requests:
        columns = let_in[sequence(request)]
        assert differences(request, columns) == [], (columns, request)
    bad = owner.execute("SELECT count(*) FROM outbox.attempt").fetchone()
    assert bad == (0,)


def sequence(request: Request) -> int:
    """Which row it was."""
    return int(dict(request[1])["Relay-Sequence"])


def differences(request: Request, columns: dict[str, Any]) -> list[str]:
    """What did not arrive as it was inserted, or arrived though it was not inserted."""
    first, pairs, body = request
    given = {name: value for name, value in columns.items() if value is not None}
    headers = dict(pairs)
    own = given["headers"].obj or {} if "headers" in given else {}
    wanted = {
        "Host": headers["Host"],
        "Content-Length": str(len(body)),
        "Content-Type": given.get("content_type", "application/json"),
        "User-Agent": f"outbox-relay/{__version__}",
        "Idempotency-Key": given.get("idempotency_key", headers["Idempotency-Key"]),
        "Relay-Sequence": headers["Relay-Sequence"],
        "Relay-Attempt": "1",
        "Relay-Topic": given["topic"],
        **({"Relay-Entity-Key": given["entity_key"]} if "entity_key" in given else {}),
        **_trace(given),
        **own,
    }
    for name in ("Relay-Topic", "Relay-Entity-Key"):
        if name in headers:
            headers[name] = unquote(headers[name], errors="strict")
    payload = given["payload"].encode() if "payload" in given else given["body"]
    found = [name for name in {*wanted, *headers} if wanted.get(name) != headers.get(name)]
    found += ["twice"] if len(pairs) != len(headers) else []
    found += ["request line"] if first != b"POST / HTTP/1.1" else []
    return [*found, *(["body"] if body != payload else [])]


def _trace(given: dict[str, Any]) -> dict[str, str]:
    if not valid_traceparent(given.get("traceparent", "")):
        return {}
    state = {"tracestate": given["tracestate"]} if valid_tracestate(given.get("tracestate", "")) else {}
    return {"traceparent": given["traceparent"], **state}
