"""Receivers that ask for time, or need it."""

import datetime as dt
from collections.abc import Callable
from email.utils import format_datetime

import pytest

from tests.receivers.street import Street
from tests.sender.receiver import OK, Connection, Handler, answering
from tests.service.table import rows, until, value

NO_BODY = b"Content-Length: 0\r\n\r\n"


def date_in(**time: float) -> Callable[[], str]:
    """The HTTP date so far from the moment at which it is asked for: a suite may take long to come here."""
    return lambda: format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(**time), usegmt=True)


def in_turn(*answers: bytes) -> Handler:
    """One answer for each request, on connections of their own; the last one again and again."""
    left = list(answers)

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.write(left.pop(0) if len(left) > 1 else left[0])

    return handler


FAR = 86_400  # the longest that a Retry-After is obeyed


@pytest.mark.parametrize(
    ("hint", "at_least_s", "at_most_s"),
    [
        ("3600".__str__, 3_600, 3_600 * 1.25),
        (date_in(hours=2), 6_900, 7_200 * 1.25),
        (date_in(days=18_262), FAR, FAR * 1.25),
        ("9999999999".__str__, FAR, FAR * 1.25),
    ],
    ids=["seconds", "date", "a date 50 years away", "300 years of seconds"],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_is_obeyed_up_to_a_day_and_costs_no_other_job_an_attempt(
    street: Street, status: int, hint: Callable[[], str], at_least_s: float, at_most_s: float
) -> None:
    house = street.house()
    house.handler = answering(b"HTTP/1.1 %d X\r\nRetry-After: %s\r\n%s" % (status, hint().encode(), NO_BODY))
    [told] = await street.job(house, max_attempts=2)
    await until(street.database, "SELECT count(*) = 1 FROM outbox.attempt WHERE job_id = %s", told)
    [other] = await street.job(house, max_attempts=2)
    await street.assert_healthy()
    assert await street.failed(told) == [("status", status)]
    wait_s = await value(
        street.database,
        "SELECT extract(epoch FROM run_at - failed_at)::float FROM outbox.job JOIN outbox.attempt ON job_id = id"
        " WHERE id = %s",
        told,
    )
    assert at_least_s <= wait_s <= at_most_s
    untouched = "SELECT status, attempts, claims FROM outbox.job WHERE id = %s"
    assert await rows(street.database, untouched, other) == [("pending", 0, 0)]
    assert len(house.connections) == 1


@pytest.mark.parametrize("hint", ["-1", "Infinity", "NaN", "1e9", "0x10", "soon", "", "Fri, 31 Dec 1999 00:00:00 GMT"])
async def test_a_retry_after_that_is_nonsense_or_past_leaves_the_schedule_as_it_is(street: Street, hint: str) -> None:
    told = b"HTTP/1.1 429 X\r\nRetry-After: %s\r\n%s" % (hint.encode(), NO_BODY)
    fate = await street.visit(street.house(), in_turn(told, OK), max_attempts=2)
    assert (fate.status, fate.attempts, fate.failed) == ("done", 2, [("status", 429)])


async def test_a_503_that_goes_on_opens_the_breaker_and_then_200_delivers_everything_that_waited(
    street: Street,
) -> None:
    house = street.house()
    house.handler = answering(b"HTTP/1.1 503 X\r\n" + NO_BODY)
    ill = await street.job(house, max_attempts=1000, count=20)
    opened = "SELECT count(*) >= 10 FROM outbox.attempt WHERE job_id = ANY (%s)"
    await until(street.database, opened, ill)
    waiting = await street.job(house, max_attempts=1, count=20)
    house.handler = answering(OK)
    for job in [*ill, *waiting]:
        assert (await street.fate(job)).status == "done"
    # Of what came while it was ill, nothing was charged but for a probe or what was on its way.
    assert sum([len(await street.failed(job)) for job in ill]) <= 20 + 10


async def test_a_duplicate_answered_409_is_repeated_with_the_same_key_until_the_first_request_is_through(
    street: Street,
) -> None:
    keys: list[bytes] = []

    async def handler(connection: Connection) -> None:
        head, _ = await connection.request()
        keys.append(head.partition(b"Idempotency-Key: ")[2].split(b"\r\n")[0])
        if len(keys) == 1:
            return  # lost on the way back; the receiver works on it
        if len(keys) == 2:
            await connection.write(b"HTTP/1.1 409 X\r\n" + NO_BODY)
        else:
            await connection.write(OK)

    fate = await street.visit(street.house(), handler, max_attempts=5, idempotency_key="order-42")
    assert (fate.status, fate.attempts, fate.failed) == ("done", 3, [("read", None), ("status", 409)])
    assert keys == [b"order-42"] * 3
