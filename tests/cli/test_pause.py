"""`relay pause` and `relay resume`, with the name of whoever did it."""

from aiohttp import web

from tests.cli.conftest import Connection, Relay, rows, until, words
from tests.receiver import Arrival, Receiver
from tests.service.replica import Installation

OPERATIONS = "SELECT actor, verb, destination, detail FROM outbox.operation ORDER BY id"


async def test_a_pause_is_seen_and_undone_and_both_are_kept_with_a_name(relay: Relay, connection: Connection) -> None:
    await connection.execute("INSERT INTO outbox.destination (name) VALUES ('billing')")
    paused = await relay("pause", "billing", "--why", "their maintenance", "--by", "ada")
    assert (paused.code, paused.out) == (0, "billing is paused; `relay resume billing` goes on\n")
    assert words((await relay("status")).out.splitlines(), "billing")[-3:] == ["paused:", "their", "maintenance"]
    resumed = await relay("resume", "billing", "--by", "grace")
    assert (resumed.code, resumed.out) == (0, "billing goes on\n")
    assert await rows(connection, OPERATIONS) == [
        ("ada", "pause", "billing", {"why": "their maintenance"}),
        ("grace", "resume", "billing", {}),
    ]


async def test_pausing_what_is_paused_keeps_the_first_reason_and_is_no_operation(
    relay: Relay, connection: Connection
) -> None:
    await relay("pause", "billing", "--why", "answered 410", "--by", "r1")
    again = await relay("pause", "billing", "--why", "me too", "--by", "ada")
    assert (again.code, again.out) == (0, "billing was already paused; `relay resume billing` goes on\n")
    assert await rows(connection, OPERATIONS) == [("r1", "pause", "billing", {"why": "answered 410"})]
    assert await rows(connection, "SELECT paused_why FROM outbox.destination") == [("answered 410",)]


async def test_resuming_what_was_not_paused_says_so_and_is_no_operation(relay: Relay, connection: Connection) -> None:
    assert (await relay("resume", "billing")).out == "billing was not paused\n"
    assert await rows(connection, OPERATIONS) == []


async def test_a_destination_that_is_only_configured_can_be_paused_before_it_is_registered(
    relay: Relay, connection: Connection
) -> None:
    assert (await relay("pause", "billing")).code == 0
    assert await rows(connection, "SELECT paused_why FROM outbox.destination") == [("paused by an operator",)]


async def test_a_destination_that_is_only_registered_can_be_paused(relay: Relay, connection: Connection) -> None:
    await connection.execute("INSERT INTO outbox.destination (name) VALUES ('attic')")
    assert (await relay("pause", "attic")).code == 0


async def test_a_pause_that_says_no_reason_or_no_name_is_wrong_usage(relay: Relay, connection: Connection) -> None:
    for option in ("--why", "--by"):
        ran = await relay("pause", "billing", option, "")
        assert (ran.code, ran.out) == (2, "")
        assert f"Invalid value for '{option}': it is empty" in ran.err
    assert await rows(connection, "SELECT FROM outbox.destination") == []


async def test_a_misspelt_destination_is_refused_and_not_registered(relay: Relay, connection: Connection) -> None:
    for verb in ("pause", "resume"):
        ran = await relay(verb, "biling")
        assert (ran.code, ran.out) == (5, "")
        assert ran.err == "relay: there is no destination biling; did you mean billing?\n"
    assert await rows(connection, "SELECT FROM outbox.destination") == []


async def test_every_replica_that_runs_obeys_a_pause_and_keeps_the_backlog_until_it_is_resumed(
    installation: Installation, connection: Connection, receiver: Receiver
) -> None:
    """A claim asks for all destinations at once: whoever took a job of `final` has left those of `billing`."""

    async def refuse(arrival: Arrival) -> web.StreamResponse:
        return web.Response(status=400 if arrival.path == "/final" else 204)

    async def finished() -> bool:
        return not await rows(connection, "SELECT FROM outbox.job WHERE destination = 'final' AND status <> 'dead'")

    receiver.answer = refuse
    final = {"permanent_statuses": [400], "max_in_flight": 1}
    installation.configure(
        {"billing": {"url": receiver.url("/billing")}, "final": {"url": receiver.url("/final"), **final}}
    )
    replicas = await installation.start_two()
    assert (await installation.command("pause", "billing")).code == 0
    while not all(replica.logged("job_dead") for replica in replicas):
        await connection.execute(
            "INSERT INTO outbox.job (destination, topic, payload)"
            " SELECT name, 't', '{}' FROM unnest('{billing,final,final}'::text[]) AS name"
        )
        await until(finished)
    assert {arrival.path for arrival in receiver.arrivals} == {"/final"}
    kept = "SELECT DISTINCT status, attempts FROM outbox.job WHERE destination = 'billing'"
    assert await rows(connection, kept) == [("pending", 0)]
    assert (await installation.command("resume", "billing")).code == 0
    await until(lambda: delivered(connection))
    assert await rows(connection, kept) == [("done", 1)]


async def delivered(connection: Connection) -> bool:
    """Whether nothing waits for billing."""
    return not await rows(connection, "SELECT FROM outbox.job WHERE destination = 'billing' AND status <> 'done'")
