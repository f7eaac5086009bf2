"""`make pages`: how much of the database each page reads at 2 million jobs, counted by PostgreSQL itself.

Not part of the core suite: filling the table takes half a minute.
"""

import asyncio
import sys

import psycopg

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.conftest import OPTIONS
from tests.store.backlog import fill
from tests.web.site import TOKENS, log_in, site

MOST = 20_000
MANY = 150_000
REQUESTS = 8
PATHS = {
    "overview": "/admin/",
    "destination": "/admin/destinations/lanes",
    "dead letters": "/admin/dead",
    "dead letters, none of which fits": "/admin/dead?error=nothing-like-it",
    "dead letters of one destination": "/admin/dead?destination=skipped",
    "redrive of one": "/admin/dead/redrive?id={dead}",
    "redrive of all that fit": "/admin/dead/redrive?all=1",
    "discard of all that fit": "/admin/dead/discard?all=1",
    "a dead job": "/admin/jobs/{dead}",
    "a due job behind very many": "/admin/jobs/{last}",
    "a job of the hot entity": "/admin/jobs/{hot}",
    "search by a key": "/admin/jobs?q=nothing-like-it",
    "operations": "/admin/operations",
}
_BUFFERS = "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
_IDS = {
    "dead": "SELECT min(id) FROM outbox.job WHERE status = 'dead'",
    "last": "SELECT id FROM outbox.job WHERE status = 'pending' AND destination = 'plain' ORDER BY run_at DESC LIMIT 1",
    "hot": "SELECT min(id) FROM outbox.job WHERE destination = 'hot'",
}


async def _buffers(dsn: str, path: str) -> float:
    """Pages touched by one request, counted over several: so the plans of prepared statements are among them.

    A session reports what it read at its end at the latest; so each page is asked through connections of its own.
    """
    before = await _one(dsn, _BUFFERS)
    async with site(dsn) as found, found.browser() as browser:
        await log_in(browser, TOKENS["admin"])
        for _ in range(REQUESTS):
            answer = await browser.get(path, timeout=60)
            assert answer.status_code in {200, 409}, answer.text
    while await _one(dsn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'relay web'"):
        await asyncio.sleep(0.01)
    return (await _one(dsn, _BUFFERS) - before) / REQUESTS


async def _one(dsn: str, query: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(query.encode())
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


async def _main(dsn: str) -> int:
    await migrate(dsn)
    await asyncio.to_thread(fill, dsn, MANY)
    ids = {name: await _one(dsn, query) for name, query in _IDS.items()}
    jobs = await _one(dsn, "SELECT count(*) FROM outbox.job")
    print(f"{jobs:,} jobs; at most {MOST:,} buffers a page")
    worst = 0.0
    for name, path in PATHS.items():
        buffers = await _buffers(dsn, path.format(**ids))
        worst = max(worst, buffers)
        print(f"{name:34} {buffers:9,.0f}{'  TOO MANY' if buffers > MOST else ''}")
    return worst > MOST


if __name__ == "__main__":
    with Nest() as nest, Postgres(nest, options=OPTIONS, tcp=True) as postgres:
        sys.exit(asyncio.run(_main(postgres.create_database("pages"))))
