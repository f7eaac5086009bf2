"""A street: one long-lived relay process, a good destination, and hostile ones next door."""

import asyncio
import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from tests.conftest import Connection as Database
from tests.sender.receiver import Connection, Handler, Receiver
from tests.service.replica import Replica
from tests.service.table import rows, until, value

DEADLINE_S = 1.0
GROWTH_KIB = 30 * 1024  # that all receivers together may add to the relay's memory, at its highest
NEIGHBOURS = 3  # good jobs for each hostile one
BUGS = ("attempt_crashed", "loop_crashed", "lane_healed", "outcomes_not_written")
USUAL: dict[str, object] = {
    "deadline_s": DEADLINE_S,
    "connect_timeout_s": 0.5,
    "retry": {"base_s": 0.02, "factor": 1, "cap_s": 0.05},
}

NEW_SECRET = "whsec_" + base64.b64encode(bytes(range(64))).decode()

Attempt = tuple[str, int | None]
Houses = Mapping[str, Mapping[str, object]]  # name -> settings


class Row(TypedDict, total=False):
    """Columns that a test chooses; without a payload or a body the payload is `{}`."""

    payload: str
    body: bytes
    content_type: str
    idempotency_key: str


@dataclass(frozen=True)
class Fate:
    """What became of a job: its status, the attempts charged, and (error class, HTTP status) of each failed one."""

    job: int
    status: str
    attempts: int
    failed: list[Attempt]


class House:
    """One hostile destination; `handler` says what it does to each connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.handler: Handler | None = None
        self.receiver: Receiver

    @property
    def connections(self) -> list[Connection]:
        """Everything that was ever accepted here."""
        return self.receiver.connections

    async def serve(self, connection: Connection) -> None:
        """Do as the handler says; nobody home closes the connection."""
        if self.handler is not None:
            await self.handler(connection)


class Street:
    """The relay process, and who lives beside the good destination."""

    def __init__(self, replica: Replica, database: Database, houses: Mapping[str, House]) -> None:
        self.replica = replica
        self.database = database
        self._houses = dict(houses)
        self._started_kib = 0
        self._seen = 0  # events of the replica that earlier tests answered for

    def house(self, name: str | None = None) -> House:
        """The house of this name, or a plain one where nobody has lived yet."""
        return self._houses[name] if name is not None else self._houses.pop(next(iter(self._houses)))

    async def job(self, house: House, *, max_attempts: int = 1, count: int = 1, **row: Unpack[Row]) -> list[int]:
        """Insert `count` jobs for a house, and with them NEIGHBOURS for the good one; the former's ids."""
        payload = row.get("payload", None if "body" in row else "{}")
        found = await rows(
            self.database,
            "WITH good AS (INSERT INTO outbox.job (topic, destination, payload)"
            "              SELECT 'good', 'good', '{}' FROM generate_series(1, %s))"
            " INSERT INTO outbox.job (topic, destination, max_attempts, payload, body, content_type, idempotency_key)"
            " SELECT 'hostile', %s, %s, %s::json, %s::bytea, %s, %s FROM generate_series(1, %s) RETURNING id",
            NEIGHBOURS,
            house.name,
            max_attempts,
            payload,
            row.get("body"),
            row.get("content_type"),
            row.get("idempotency_key"),
            count,
        )
        return [number for [number] in found]

    async def fate(self, job: int) -> Fate:
        """Wait until a job is done or dead, and its neighbours are done."""
        await until(self.database, "SELECT status IN ('done', 'dead') FROM outbox.job WHERE id = %s", job)
        await until(
            self.database, "SELECT count(*) = 0 FROM outbox.job WHERE destination = 'good' AND status <> 'done'"
        )
        [(status, attempts)] = await rows(self.database, "SELECT status, attempts FROM outbox.job WHERE id = %s", job)
        return Fate(job, status, attempts, await self.failed(job))

    async def failed(self, job: int) -> list[Attempt]:
        """The failed attempts of a job so far."""
        found = await rows(
            self.database, "SELECT error_class, status FROM outbox.attempt WHERE job_id = %s ORDER BY claim", job
        )
        return [(error_class, status) for error_class, status in found]

    async def detail(self, job: int) -> str:
        """What the last failed attempt of a job says."""
        query = "SELECT detail FROM outbox.attempt WHERE job_id = %s ORDER BY claim DESC LIMIT 1"
        return str(await value(self.database, query, job))

    async def visit(self, house: House, handler: Handler | None, *, max_attempts: int = 1, **row: Unpack[Row]) -> Fate:
        """Let `handler` move in, send one job there, and return what became of it."""
        house.handler = handler
        [job] = await self.job(house, max_attempts=max_attempts, **row)
        return await self.fate(job)

    async def good_came_first(self, fate: Fate) -> bool:
        """Whether the good jobs inserted with this one were all settled before its first attempt had failed."""
        return bool(
            await value(
                self.database,
                "SELECT count(*) FILTER (WHERE g.finished_at < (SELECT min(failed_at) FROM outbox.attempt"
                "                                                WHERE job_id = h.id)) = %s"
                "  FROM outbox.job h JOIN outbox.job g ON g.created_at = h.created_at AND g.destination = 'good'"
                " WHERE h.id = %s",
                NEIGHBOURS,
                fate.job,
            )
        )

    async def warm(self) -> None:
        """Deliver to the good one; from here on memory counts."""
        await self._good_delivery()
        self._started_kib = self._peak_kib()

    async def assert_healthy(self) -> None:
        """The process lives and delivers, has logged no new bug, charged no good job twice, and stayed small."""
        await self._good_delivery()
        assert self.replica.process.poll() is None
        assert self.replica.stray == []
        news, self._seen = self.replica.events[self._seen :], len(self.replica.events)
        assert [each for each in news if each["event"] in BUGS] == []
        hurt = "SELECT count(*) FROM outbox.job WHERE destination = 'good' AND (attempts, claims) <> (1, 1)"
        assert await value(self.database, hurt) == 0
        assert self._peak_kib() - self._started_kib < GROWTH_KIB

    async def _good_delivery(self) -> None:
        insert = "INSERT INTO outbox.job (topic, destination, payload) VALUES ('good', 'good', '{}') RETURNING id"
        job = await value(self.database, insert)
        await until(self.database, "SELECT status = 'done' FROM outbox.job WHERE id = %s", job)

    def _peak_kib(self) -> int:
        status = Path(f"/proc/{self.replica.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found[1])


async def never() -> None:
    """Wait for ever; a receiver's task is cancelled with its house."""
    await asyncio.Event().wait()
