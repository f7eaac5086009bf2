"""What keeps a replica from starting is one sentence and an exit code; what it says never holds a secret."""

import json
import socket
from itertools import count

import pytest
from aiohttp import web

from relay.demo.postgres import Postgres
from tests.conftest import Connection
from tests.receiver import Arrival, Receiver
from tests.service.replica import SECRET, Done, Installation
from tests.service.table import until

HOOK = {"shop": {"url": "http://127.0.0.1:1/"}}
NUMBERS = count(1)


def assert_refused(done: Done, code: int, *words: str) -> None:
    """One `relay: …` line for each of `words`, which it holds, and nothing else."""
    lines = done.error.splitlines()
    assert (done.code, done.output, len(lines)) == (code, "", len(words)), done
    for line, word in zip(lines, words, strict=True):
        assert line.startswith("relay: ")
        assert word in line


async def test_a_database_without_the_schema_ends_the_start_with_code_4_and_says_to_migrate(
    installation: Installation, new_database: str
) -> None:
    installation.dsn = new_database
    installation.configure(HOOK)
    assert_refused(await installation.command("run"), 4, "the database has no outbox schema; run `relay migrate`")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("DELETE FROM outbox.migration WHERE version = 2", "missing migrations: 0002_destination; run `relay migrate`"),
        (
            "INSERT INTO outbox.migration VALUES (99, '0099_later', '', false)",
            "the database has 0099_later, this version knows migrations up to",
        ),
    ],
    ids=["behind", "ahead"],
)
async def test_a_schema_of_another_version_ends_the_start_with_code_4_and_says_which(
    change: str, word: str, installation: Installation, connection: Connection, postgres: Postgres, template: str
) -> None:
    installation.dsn = postgres.create_database(f"other_{next(NUMBERS)}", template=template)
    async with await type(connection).connect(installation.dsn, autocommit=True) as other:
        await other.execute(change.encode())
    installation.configure(HOOK)
    assert_refused(await installation.command("run"), 4, word)


@pytest.mark.parametrize("server", ["refuses", "never_answers"])
async def test_a_database_that_is_away_at_the_start_ends_it_with_code_3_in_bounded_time(
    server: str, installation: Installation
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if server == "never_answers":
            silent.listen()
        port = silent.getsockname()[1]
        installation.dsn = f"postgresql://relay@127.0.0.1:{port}/app"
        installation.configure(HOOK)
        done = await installation.command("run")
    assert done.code == 3
    assert done.error.startswith("relay: the database ")
    assert "cannot be reached: " in done.error
    assert str(port) in done.error
    assert "Traceback" not in done.error


async def test_a_bad_configuration_ends_the_start_with_code_2_and_a_line_for_each_fault(
    installation: Installation,
) -> None:
    installation.configure(
        {"shop": {"url": "ftp://a/", "max_in_flight": 0}, "mail": {"url": "https://b/", "secrets": [{"env": "UNSET"}]}}
    )
    done = await installation.command("run")
    assert_refused(done, 2, "destinations.shop.max_in_flight: 0", "destinations.shop.url: scheme 'ftp'")
    installation.configure({"mail": {"url": "https://b/", "secrets": [{"env": "UNSET"}]}})
    assert_refused(await installation.command("run"), 2, "environment variable UNSET is not set or empty")


async def test_a_lease_that_does_not_cover_a_delivery_is_refused_with_both_values(installation: Installation) -> None:
    installation.configure(HOOK, defaults={"deadline_s": 5}, replica={"lease_s": 10})
    done = await installation.command("run")
    assert (done.code, done.output) == (2, "")
    for line in done.error.splitlines():
        assert "deadline_s" in line
        assert "5 s + 5 s must be less than replica.lease_s" in line
        assert "10 s" in line


async def test_a_registry_that_differs_from_the_configuration_is_logged_and_left_alone(
    installation: Installation, connection: Connection
) -> None:
    await connection.execute(
        "INSERT INTO outbox.destination (name, topics, on_dead)"
        " VALUES ('same', '{a}', 'block'), ('other', '{a}', 'block'), ('more', '{}', 'skip')"
    )
    url = "http://127.0.0.1:1/"
    installation.configure(
        {
            "same": {"url": url, "topics": ["a"]},
            "other": {"url": url, "topics": ["b"]},
            "new": {"url": url, "topics": ["c"]},
        }
    )
    replica = await installation.start()
    said = {(each["event"], each["destination"]) for each in replica.events if "destination" in each}
    assert said == {
        ("destination_differs", "other"),
        ("destination_not_registered", "new"),
        ("destination_not_configured", "more"),
    }
    await until(connection, "SELECT count(*) = 3 FROM outbox.destination WHERE topics <> '{b}' AND retired_at IS NULL")


async def test_no_secret_is_ever_logged(installation: Installation, connection: Connection, receiver: Receiver) -> None:
    async def fail_differently(arrival: Arrival) -> web.StreamResponse:
        if arrival.path == "/moved/path-secret":
            return web.Response(status=302, headers={"Location": "https://elsewhere/location-secret?q=query-secret"})
        return web.Response(status=500, text="answer-secret")

    receiver.answer = fail_differently
    installation.environment["TOKEN"] = "Bearer header-secret"
    installation.environment["RELAY_DATABASE_DSN"] = installation.dsn.replace("postgres@", "postgres:dsn-secret@")
    once = {"retry": {"max_attempts": 1}, "headers": {"Authorization": {"env": "TOKEN"}}}
    installation.configure(
        {
            "moved": {"url": receiver.url("/moved/path-secret"), **once},
            "fails": {"url": receiver.url("/fails?token=query-secret"), **once},
            "closed": {"url": "http://127.0.0.1:1/path-secret", **once},
            "nowhere": {"url": "https://nowhere.invalid/path-secret", **once},
        },
        log={"level": "debug"},
    )
    replica = await installation.start()
    await connection.execute(
        "INSERT INTO outbox.job (topic, destination, entity_key, payload, headers)"
        " SELECT 't', d, 'e', '\"payload-secret\"', '{\"X-Key\": \"row-secret\"}'"
        "   FROM unnest('{moved,fails,closed,nowhere}'::text[]) d"
    )
    for number in range(1, 5):
        await replica.event("job_dead", job=number)
    assert await replica.stop() == 0
    said = json.dumps(replica.events) + str(replica.stray)
    for secret in (SECRET, SECRET.removeprefix("whsec_"), "-secret"):
        assert secret not in said
