"""`relay` as people run it: a process of its own, a configuration file, a real database."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from relay.demo.nest import Nest
from tests.service.replica import Installation

Connection = psycopg.AsyncConnection[TupleRow]

# None of these may ever be seen.
SECRETS = {"SIGNING": "whsec_" + "c2VjcmV0" * 4, "BEARER": "Bearer hunter2-bearer"}

CONFIGURATION = """
destinations:
  billing:
    url: http://127.0.0.1:9/hook?token=hunter2-url
    topics: [order.paid]
    secrets: [{env: SIGNING}]
    headers: {Authorization: {env: BEARER}}
    retry: {max_attempts: 12}
  search:
    url: http://127.0.0.1:9/events
    topics: ["*"]
    signed: false
    on_dead: skip
    key_suffix: search
"""


@dataclass(frozen=True)
class Ran:
    """What a process said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line on standard output, read as JSON."""
        [line] = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        """Every line on standard output, read as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


Relay = Callable[..., Coroutine[Any, Any, Ran]]
Put = Callable[..., Awaitable[int]]


@pytest.fixture
async def database(database: str) -> str:
    """The DSN of a migrated database in which nothing has happened."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("TRUNCATE outbox.operation RESTART IDENTITY")
    return database


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """A configuration file with the destinations billing and search."""
    file = tmp_path / "relay.yaml"
    file.write_text(CONFIGURATION)
    return file


def configure(file: Path, old: str = "", new: str = "", more: str = "") -> None:
    """Write the usual configuration with `old` replaced, and `more` at its end."""
    file.write_text((CONFIGURATION.replace(old, new) if old else CONFIGURATION) + more)


@pytest.fixture
def anywhere(tmp_path: Path) -> Relay:
    """Run `relay` with these arguments and variables, and nothing else that it could find."""

    async def run(*arguments: str, **variables: str) -> Ran:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relay", *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**kept, "PYTHONPATH": str(Path.cwd()), **variables}, cwd=tmp_path,
        )  # fmt: skip
        out, err = await process.communicate()
        ran = Ran(process.returncode or 0, out.decode(), err.decode())
        said = ran.out + ran.err
        assert "Traceback" not in said, said
        assert "hunter2" not in said, said
        assert not any(secret in said for secret in SECRETS.values()), said
        return ran

    return run


@pytest.fixture
def relay(anywhere: Relay, configured: Path, database: str) -> Relay:
    """Run `relay` with the configuration and the database of this test."""

    async def run(*arguments: str, **variables: str) -> Ran:
        known = {"RELAY_DATABASE_DSN": database, "RELAY_CONFIG": str(configured), **SECRETS}
        return await anywhere(*arguments, **{**known, **variables})

    return run


async def answered(answer: str, *arguments: str, database: str, configured: Path) -> tuple[int | None, str, str]:
    """Run `relay` at a terminal where a person answers its question; its exit code, and what it wrote where."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "relay", *arguments,
        stdin=theirs, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**SECRETS, "PATH": os.environ["PATH"], "RELAY_DATABASE_DSN": database, "RELAY_CONFIG": str(configured)},
    )  # fmt: skip
    os.write(ours, f"{answer}\n".encode())
    out, err = await process.communicate()
    os.close(ours)
    os.close(theirs)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def put(connection: Connection) -> Put:
    """Insert a job and return its id; then set columns to SQL expressions, `run_at="now() + interval '9 s'"`."""

    async def insert(
        destination: str | None = "billing", entity_key: str | None = None, *, topic: str = "order.paid",
        key: str | None = None, payload: str = "{}", **columns: str,
    ) -> int:  # fmt: skip
        cursor = await connection.execute(
            "INSERT INTO outbox.job (destination, topic, entity_key, idempotency_key, payload) "
            "VALUES (%s, %s, %s, %s, %s::json) RETURNING id",
            (destination, topic, entity_key, key, payload),
        )
        row = await cursor.fetchone()
        assert row is not None
        if columns:
            changes = sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(name), sql.SQL(text)) for name, text in columns.items()
            )
            await connection.execute(sql.SQL("UPDATE outbox.job SET {} WHERE id = {}").format(changes, row[0]))
        return int(row[0])

    return insert


RUNNING = {"status": "'running'", "claims": "1", "attempts": "1", "locked_by": "'r1-0badcafe'",
           "locked_until": "now() + interval '45 s'"}  # fmt: skip
DEAD = {"status": "'dead'", "claims": "12", "attempts": "12", "finished_at": "'2026-01-02 03:04:05+00'"}
DONE = {"status": "'done'", "claims": "2", "attempts": "2", "finished_at": "'2026-01-02 03:04:05+00'",
        "holds_lane": "false"}  # fmt: skip


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def fail(connection: Connection, job_id: int, detail: str, *, claim: int = 1, response: bytes = b"") -> None:
    """Keep a failed attempt of a job."""
    await connection.execute(
        "INSERT INTO outbox.attempt (job_id, claim, attempt, replica, error_class, detail, status, duration_s,"
        " response, trace_id) VALUES (%s, %s, %s, 'r1-0badcafe', 'status', %s, 503, 0.25, %s, %s)",
        (job_id, claim, claim, detail, response, TRACE),
    )


async def rows(connection: Connection, query: str, *parameters: object) -> list[TupleRow]:
    """What a query returns."""
    cursor = await connection.execute(query, parameters)
    return await cursor.fetchall()


@pytest.fixture
async def replica(database: str) -> AsyncIterator[str]:
    """The name of a replica that is connected, as far as the database can tell."""
    async with await psycopg.AsyncConnection.connect(database, application_name="relay r1-0badcafe"):
        yield "r1-0badcafe"


@pytest.fixture
async def installation(nest: Nest, tmp_path: Path, database: str) -> AsyncIterator[Installation]:
    """Replicas to be configured; what a bug would log fails the test."""
    installation = Installation(nest, tmp_path, database)
    yield installation
    await installation.close()


async def until(true: Callable[[], Awaitable[object]], timeout_s: float = 20.0) -> None:
    """Ask again until it is so: another process's wait for a lock gives no signal."""
    async with asyncio.timeout(timeout_s):
        while not await true():
            await asyncio.sleep(0.01)


def words(lines: Sequence[str], first: str) -> list[str]:
    """The words of the one line that begins with `first`."""
    [line] = [line for line in lines if line.startswith(first)]
    return line.split()
