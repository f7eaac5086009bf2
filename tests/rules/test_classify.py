import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.model import Answer, Delivered, ErrorClass, Failed, Fault, Gone, Outcome, Refused
from relay.rules.classify import asked_wait_s, classify, retry_after_s

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()
NONE: frozenset[int] = frozenset()


def outcome(status: int, permanent: frozenset[int] = NONE, **headers: str) -> Outcome:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify(Answer(status, named, b""), permanent, NOW)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_delivered(status: int) -> None:
    assert outcome(status) == Delivered()


@pytest.mark.parametrize("status", [101, 304, 400, 401, 404, 408, 409, 418, 422, 425, 429, 500, 502, 503, 504, 599])
def test_every_other_status_is_failed_and_may_be_repeated(status: int) -> None:
    result = outcome(status)
    assert isinstance(result, Failed)
    assert result.error_class is ErrorClass.STATUS
    assert str(status) in result.detail


def test_a_status_listed_as_permanent_is_refused_with_its_reason() -> None:
    assert outcome(400, frozenset({400})) == Refused(ErrorClass.STATUS, "400 Bad Request")


def test_410_is_gone() -> None:
    assert outcome(410) == Gone("410 Gone")


def test_410_listed_as_permanent_is_refused_because_the_operator_said_so() -> None:
    assert isinstance(outcome(410, frozenset({410})), Refused)


def test_2xx_is_delivered_even_when_listed_as_permanent() -> None:
    assert outcome(200, frozenset({200})) == Delivered()


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_a_fault_is_failed_with_its_error_class(error_class: ErrorClass) -> None:
    assert classify(Fault(error_class, "why"), NONE, NOW) == Failed(error_class, "why")


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("https://user:secret@evil.test:8443/path?token=secret#secret", "host evil.test"),
        ("//evil.test/secret", "host evil.test"),
        ("http://[::1]/secret", "host ::1"),
        ("/login?token=secret", "another path of the same host"),
        ("", "another path of the same host"),
        ("http://[secret", "a Location that is not a URL"),
        ("http://e\x1bvil secret/", "a Location whose host is not a name"),
    ],
)
def test_a_redirect_names_the_host_of_its_location_and_nothing_else_of_it(location: str, text: str) -> None:
    result = outcome(307, location=location)
    assert result == Failed(ErrorClass.STATUS, f"307 Temporary Redirect, not followed to {text}")


@given(
    st.integers(-10, 10**6).filter(lambda status: not 200 <= status <= 299),
    st.dictionaries(st.sampled_from(["location", "retry-after", "date"]), st.text()),
)
def test_no_answer_puts_a_control_character_into_the_detail(status: int, headers: dict[str, str]) -> None:
    result = classify(Answer(status, headers, b""), NONE, NOW)
    assert isinstance(result, Failed | Gone)
    assert result.detail.isprintable()
    assert len(result.detail) < 500


@given(st.text())
def test_no_fault_puts_a_control_character_into_the_detail(text: str) -> None:
    result = classify(Fault(ErrorClass.READ, text), NONE, NOW)
    assert isinstance(result, Failed)
    assert result.detail.isprintable()
    assert len(result.detail) <= 500


@pytest.mark.parametrize("status", [429, 503])
def test_429_and_503_carry_the_wait_they_ask_for(status: int) -> None:
    result = outcome(status, retry_after="120")
    assert isinstance(result, Failed)
    assert result.hint_s == 120


@pytest.mark.parametrize("status", [301, 408, 409, 425, 500, 502])
def test_retry_after_on_another_status_is_left_to_the_schedule(status: int) -> None:
    result = outcome(status, retry_after="120")
    assert isinstance(result, Failed)
    assert result.hint_s is None


def test_a_fault_asks_for_no_wait() -> None:
    assert asked_wait_s(Fault(ErrorClass.CONNECT, "refused"), NOW) is None


def test_a_date_is_measured_against_the_answers_own_date() -> None:
    wrong_clock = {"date": "Fri, 01 Jan 1999 00:00:00 GMT", "retry-after": "Fri, 01 Jan 1999 00:01:30 GMT"}
    assert asked_wait_s(Answer(503, wrong_clock, b""), NOW) == 90


def test_a_date_is_measured_against_our_clock_when_the_answers_date_is_unreadable() -> None:
    headers = {"date": "yesterday", "retry-after": "Sun, 01 Mar 2026 12:01:30 GMT"}
    assert asked_wait_s(Answer(503, headers, b""), NOW) == 90


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 0),
        ("120", 120),
        (" 120\t", 120),
        ("0000000000000000000120", 120),
        ("Sun, 01 Mar 2026 12:02:00 GMT", 120),
        ("Sunday, 01-Mar-26 12:02:00 GMT", 120),
        ("Sun Mar  1 12:02:00 2026", 120),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:60 GMT", 251629934399),
        ("Mon, 01 Mar 1976 00:00:00 GMT", 0),
    ],
)
def test_retry_after_reads_seconds_and_the_three_forms_of_a_date(value: str, wait_s: float) -> None:
    assert retry_after_s(value, NOW) == wait_s


def test_a_date_50_years_away_is_a_large_number() -> None:
    wait = retry_after_s("Sun, 01 Mar 2076 12:00:00 GMT", NOW)
    assert wait is not None
    assert wait / (365.25 * 86_400) == pytest.approx(50, rel=0.001)


@pytest.mark.parametrize(("year", "ahead"), [("76", 50), ("60", 34), ("27", 1), ("77", None), ("99", None)])
def test_a_two_digit_year_is_at_most_50_years_ahead_else_past(year: str, ahead: int | None) -> None:
    wait = retry_after_s(f"Sunday, 01-Mar-{year} 12:00:00 GMT", NOW)
    assert wait is not None
    assert round(wait / (365.25 * 86_400)) == (ahead or 0)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "+1",
        "1.5",
        "1e9999",
        "Infinity",
        "NaN",
        "9" * 11,
        "9" * 5000,
        "١٢٠",
        "²",
        "1_000",
        "120, 240",
        "0x10",
        "soon",
        "Sun, 31 Feb 2026 12:00:00 GMT",
        "Sun, 00 Mar 2026 12:00:00 GMT",
        "Sun, 01 Mar 0000 12:00:00 GMT",
        "Sun, 01 Mar 2026 24:00:00 GMT",
        "Sun, 01 Mar 2026 12:00:61 GMT",
        "Sun, 01 Mar 2026 12:00:00 CET",
        "Sun, 01 Mar 2026 12:00:00 +0000",
        "Sun, 0١ Mar 2026 12:00:00 GMT",
        "Sun Mar 01 12:00 2026",
        "120\n",
    ],
)
def test_nonsense_in_retry_after_is_ignored(value: str) -> None:
    assert retry_after_s(value, NOW) is None


@given(st.text() | st.from_regex(r"-?[0-9eE.+_]+"), st.floats(0, 1e12))
def test_any_retry_after_is_ignored_or_a_finite_wait(value: str, now: float) -> None:
    wait = retry_after_s(value, now)
    assert wait is None or (math.isfinite(wait) and wait >= 0)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_every_date_that_the_standard_library_writes_is_read(moment: datetime) -> None:
    exact = moment.replace(microsecond=0, tzinfo=UTC)
    assert retry_after_s(format_datetime(exact, usegmt=True), 0.0) == exact.timestamp()
