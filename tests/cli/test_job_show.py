"""`relay job show` answers why a job is not delivered."""

from base64 import b64encode

from tests.cli.conftest import DEAD, DONE, RUNNING, TRACE, Connection, Put, Relay, fail


async def test_the_first_line_says_why_and_the_rest_is_the_row_with_its_attempts(
    relay: Relay, put: Put, connection: Connection
) -> None:
    head = await put(entity_key="order-1", attempts="3", claims="3", run_at="now() + interval '90 s'")
    await fail(connection, head, "503 Service Unavailable", claim=3, response=b"try \x1b[31mlater\n")
    job = await put(entity_key="order-1", status="'blocked'", key="event-7")
    shown = await relay("job", "show", str(job))
    assert (shown.code, shown.err) == (0, "")
    why, _, *facts = shown.out.splitlines()
    assert why.startswith(f"job {job} for billing: waits behind job {head} of the same entity, which failed 3 of 12")
    assert why.endswith(": 503 Service Unavailable")
    assert {line.split()[0]: line.split()[1] for line in facts if line}["lane"] == "held"
    assert f"  lane held by     job {head}, pending" in facts
    assert "  idempotency key  event-7" in facts

    [*_, attempt, _, _, answer] = (await relay("job", "show", str(head))).out.splitlines()
    assert attempt.split()[2:6] == ["3", "r1-0badcafe", "status", "503"]
    assert attempt.endswith(f"503 Service Unavailable  {TRACE}")
    assert answer == "  try \\x1b[31mlater\\n"


async def test_of_each_answer_the_first_4_kib_are_shown_as_text_or_else_in_base64(
    relay: Relay, put: Put, connection: Connection
) -> None:
    job = await put(**DEAD, holds_lane="false")
    cut = ("é" * 2048).encode()[:-1] + b"y"
    for claim, response in enumerate((b"busy", b"busy", b"\xff\x00", b"x" + "é".encode() * 2047 + b"\xc3", cut), 1):
        await fail(connection, job, "503", claim=claim, response=response)
    for verb in ("job", "dead"):
        failures = (await relay(verb, "show", str(job), "--json")).json["job"]["failures"]
        assert [(each["response"], each["response_base64"]) for each in failures] == [
            ("busy", None), ("busy", None), (None, "/wA="), ("x" + "é" * 2047, None), (None, b64encode(cut).decode()),
        ]  # fmt: skip
        assert {each["trace_id"] for each in failures} == {TRACE}
        lines = (await relay(verb, "show", str(job))).out.splitlines()
        assert lines[lines.index("  answer to 1, 2:") + 1] == "  busy"
        assert lines[lines.index("  answer to 3:") + 1] == "  /wA="
        assert lines[lines.index("  answer to 4:") + 1] == "  x" + "é" * 2047


async def test_json_has_the_sentence_the_row_the_holder_and_the_attempts(
    relay: Relay, put: Put, connection: Connection
) -> None:
    head = await put(entity_key="order-1", **DEAD, holds_lane="true")
    await fail(connection, head, "500 Internal Server Error", claim=12)
    job = await put(entity_key="order-1", status="'blocked'")
    shown = (await relay("job", "show", str(job), "--json")).json
    assert shown["why"].endswith("500 Internal Server Error; redrive or discard that one")
    assert shown["content"] is None
    assert (shown["job"]["id"], shown["job"]["status"], shown["job"]["failures"]) == (job, "blocked", [])
    assert (shown["job"]["holder"]["id"], shown["job"]["holder"]["status"]) == (head, "dead")
    assert shown["job"]["holder"]["finished_at"] == "2026-01-02T03:04:05+00:00"
    dead = (await relay("job", "show", str(head), "--json")).json
    [failure] = dead["job"]["failures"]
    assert (failure["error_class"], failure["status"], failure["duration_s"]) == ("status", 503, 0.25)


async def test_a_key_shows_the_job_of_every_destination(relay: Relay, put: Put) -> None:
    done = await put("billing", key="event-7", **DONE)
    waiting = await put("search", key="event-7")
    await put("search", key="event-8")
    shown = await relay("job", "show", "event-7")
    whys = [line for line in shown.out.splitlines() if line.startswith("job ")]
    assert whys[0] == f"job {done} for billing: delivered at 2026-01-02 03:04:05Z, 2 attempts"
    assert whys[1].startswith(f"job {waiting} for search: is due since ")
    assert whys[1].endswith("; no replica is connected")
    assert len(whys) == 2
    assert [each["job"]["id"] for each in (await relay("job", "show", "event-7", "--json")).lines] == [done, waiting]


async def test_a_number_is_an_id_first_and_then_a_key(relay: Relay, put: Put) -> None:
    first = await put(key="2")
    second = await put(key="77")
    assert (await relay("job", "show", "2", "--json")).json["job"]["id"] == second
    assert (await relay("job", "show", "2", "--key", "--json")).json["job"]["id"] == first
    assert (await relay("job", "show", "77", "--json")).json["job"]["id"] == second


async def test_unfinished_and_dead_jobs_are_found_by_their_key_however_old_and_finished_ones_are_not(
    relay: Relay, put: Put, connection: Connection
) -> None:
    """100,000 newer jobs are in front of them."""
    kinds = (RUNNING, {**DEAD, "holds_lane": "false"}, {"attempts": "1", "claims": "1"})
    old = [await put(key="old", **kind) for kind in kinds]
    old += [await put(key="old", entity_key="e", status="'blocked'"), await put(None, topic="x.y", key="old")]
    await put(key="done", **DONE)
    await connection.execute(
        "INSERT INTO outbox.job (destination, topic, payload, status, finished_at, holds_lane) "
        "SELECT 'search', 'order.paid', '{}', 'done', now(), false FROM generate_series(1, 100000)"
    )
    assert [each["job"]["id"] for each in (await relay("job", "show", "old", "--json")).lines] == old
    missed = await relay("job", "show", "done")
    assert missed.code == 5
    assert "none that is unfinished or among the newest 100,000 has it as its idempotency key" in missed.err


async def test_the_payload_is_shown_only_when_it_is_asked_for(relay: Relay, put: Put, connection: Connection) -> None:
    job = await put(payload='{"total":  "19.99"}', headers="""'{"X-Shop": "seven"}'""")
    assert "19.99" not in (await relay("job", "show", str(job))).out
    assert "seven" not in (await relay("job", "show", str(job), "--json")).out
    shown = await relay("job", "show", str(job), "--payload")
    assert shown.out.splitlines()[-2:] == ["  X-Shop: seven", '  {"total":  "19.99"}']
    content = (await relay("job", "show", str(job), "--payload", "--json")).json["content"]
    assert content == {"text": '{"total":  "19.99"}', "base64": None, "headers": {"X-Shop": "seven"}}
    await connection.execute(
        "UPDATE outbox.job SET payload = NULL, body = '\\xff00', content_type = 'application/x' WHERE id = %s", (job,)
    )
    content = (await relay("job", "show", str(job), "--payload", "--json")).json["content"]
    assert (content["text"], content["base64"]) == (None, "/wA=")


async def test_nothing_found_is_a_sentence_and_exit_code_5(relay: Relay) -> None:
    for sought in ("4711", "no-such-key", "9" * 30, "it's"):
        shown = await relay("job", "show", sought)
        assert (shown.code, shown.out) == (5, "")
        assert sought in shown.err
        assert shown.err.startswith("relay: no job has the id or idempotency key ")
        assert len(shown.err.splitlines()) == 1


async def test_text_of_strangers_cannot_command_the_terminal(relay: Relay, put: Put, connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO outbox.destination (name, paused_at, paused_why) VALUES ('billing', now(), E'so\\x1b[2J\\nthere')"
    )
    job = await put(entity_key="order\x1b]0;x\x07")
    shown = await relay("job", "show", str(job))
    assert shown.code == 0
    assert all(line.isprintable() for line in shown.out.splitlines())


async def test_attempts_that_outlived_their_job_are_no_job(relay: Relay, connection: Connection) -> None:
    await fail(connection, 5, "503")
    assert (await relay("job", "show", "5")).code == 5
