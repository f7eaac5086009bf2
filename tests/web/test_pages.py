"""What the pages say, and what they never do."""

import os
import re
import signal

import httpx
import pytest

from relay import database as our_database
from tests.conftest import Connection
from tests.web.seed import Seeded
from tests.web.site import TOKENS, Site, form_token, site


async def test_a_payload_with_markup_is_shown_as_text(admin: httpx.AsyncClient, seeded: Seeded) -> None:
    page = (await admin.get(f"/admin/jobs/{seeded.loose[0]}")).text
    assert "&lt;script&gt;document.title" in page
    assert "<script>" not in page
    assert "<img" not in page


async def test_a_header_an_error_and_an_entity_with_markup_are_text(
    admin: httpx.AsyncClient, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, entity_key, payload, headers, status, finished_at, claims)"
        " VALUES ('billing', 'a', '<i>e</i>', '{}', '{\"X-A\": \"<i>h</i>\"}', 'dead', now(), 1)"
    )
    await connection.execute(
        "INSERT INTO outbox.attempt (job_id, claim, attempt, replica, error_class, detail, duration_s, response)"
        " VALUES (1, 1, 1, '<i>r</i>', 'status', '<i>d</i>', 1, '<i>a</i>')"
    )
    for path in ("/admin/", "/admin/dead", "/admin/jobs/1", "/admin/dead?error=%3Ci%3Ed", "/admin/dead/discard?id=1"):
        page = (await admin.get(path)).text
        assert (path, "<i>" in page) == (path, False)
        assert path.startswith("/admin/dead/") or "&lt;i&gt;" in page


async def test_a_large_payload_is_cut_off_and_the_page_says_so(
    admin: httpx.AsyncClient, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload) VALUES ('a', 'b', to_json(repeat('x', 1000000)))"
    )
    page = (await admin.get("/admin/jobs/1")).text
    assert len(page) < 80_000
    assert "Cut off here" in page
    assert "1,000,002 bytes" in page


async def test_dead_letters_are_paged(admin: httpx.AsyncClient, connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, holds_lane, finished_at)"
        " SELECT 'billing', 'a', '{}', 'dead', false, now() FROM generate_series(1, 120)"
    )
    path, found = "/admin/dead?destination=billing", []
    for _ in range(3):
        page = (await admin.get(path)).text
        found += [int(job_id) for job_id in re.findall(r'name="id" value="(\d+)"', page)]
        link = re.search(r'rel="next" href="([^"]+)"', page)
        if link is None:
            break
        path = link[1].replace("&amp;", "&")
        assert "destination=billing" in path
    assert found == list(range(1, 121))


async def test_a_bulk_action_counts_first_and_takes_no_more_than_a_thousand(
    admin: httpx.AsyncClient, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, holds_lane, finished_at)"
        " SELECT 'billing', 'a', '{}', 'dead', false, now() FROM generate_series(1, 1100)"
    )
    page = await admin.get("/admin/dead/redrive?all=1")
    assert "1,000 jobs would be redriven (billing 1000)" in page.text
    assert "These are the first of them" in page.text
    [ids] = re.findall(r'name="ids" value="([\d,]+)"', page.text)
    done = await admin.post("/admin/dead/redrive", data={"form_token": form_token(page), "ids": ids})
    assert "1,000 jobs were redriven (billing 1000)" in done.text
    cursor = await connection.execute("SELECT status, count(*) FROM outbox.job GROUP BY status ORDER BY status")
    assert await cursor.fetchall() == [("dead", 100), ("pending", 1000)]


async def test_a_letter_that_was_redriven_meanwhile_is_not_sent_twice(
    admin: httpx.AsyncClient, seeded: Seeded, connection: Connection
) -> None:
    page = await admin.get(f"/admin/dead/redrive?id={seeded.loose[0]}")
    await connection.execute(
        "UPDATE outbox.job SET status = 'done', finished_at = now() WHERE id = %s", (seeded.loose[0],)
    )
    done = await admin.post("/admin/dead/redrive", data={"form_token": form_token(page), "ids": str(seeded.loose[0])})
    assert "0 jobs were redriven, 1 refused" in done.text
    cursor = await connection.execute("SELECT count(*) FROM outbox.job WHERE redrive")
    assert await cursor.fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/admin/jobs/999999", 404, "there is no job 999999"),
        ("/admin/destinations/nowhere", 404, "there is no destination nowhere"),
        ("/admin/nothing", 404, "Not Found"),
        ("/admin/dead?since=soon", 400, "neither a time such as"),
        ("/admin/dead/redrive", 400, "no dead letter is chosen"),
        ("/admin/jobs?q=nothing", 409, "no job has the id or idempotency key"),
        ("/admin/jobs", 400, "which job?"),
    ],
)
async def test_what_cannot_be_shown_is_said_in_a_sentence(
    admin: httpx.AsyncClient, path: str, status: int, says: str
) -> None:
    answer = await admin.get(path)
    assert answer.status_code == status
    assert says in answer.text
    assert '<p role="alert">' in answer.text


@pytest.mark.parametrize("away", ["ended", "silent"])
async def test_a_database_that_is_away_is_no_bug_of_the_page(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr(our_database, "_ANSWER_S", -29.0)  # on top of the 30 s that a statement may take
    async with site(database) as found, found.program(TOKENS["viewer"]) as program:
        assert (await program.get("/admin/api/v1/operations")).status_code == 200
        cursor = await connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'relay web' AND datname = current_database()"
        )
        servers = [row[0] for row in await cursor.fetchall()]
        try:
            for pid in servers:
                os.kill(pid, signal.SIGTERM if away == "ended" else signal.SIGSTOP)
            answer = await program.get("/admin/api/v1/operations", timeout=40)
        finally:
            for pid in servers if away == "silent" else ():
                os.kill(pid, signal.SIGCONT)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("the database cannot be used: ")
    assert "page_crashed" not in caplog.text


async def test_an_empty_outbox_needs_no_attention(admin: httpx.AsyncClient, dashboard: Site) -> None:
    dashboard.breakers.clear()
    page = (await admin.get("/admin/")).text
    assert "Nothing needs attention" in page
    assert "No destination is registered" in page


async def test_a_page_says_whose_figures_it_shows(admin: httpx.AsyncClient, dashboard: Site) -> None:
    dashboard.remember()
    page = (await admin.get("/admin/")).text
    assert "are those of this replica, relay-0-5e1f00d5" in page
    assert "this replica, relay-0-5e1f00d5</strong>" in page
    delivered = sum(counts.delivered for counts in dashboard.tally.of.values())
    assert f"{delivered:,} delivered and" in page
    assert len(re.findall(r'<rect class="delivered"', page)) == 60
