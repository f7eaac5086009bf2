"""What a receiver's answer, or its absence, means for the job.

| result                                  | outcome                                                    |
|-----------------------------------------|------------------------------------------------------------|
| 2xx                                     | Delivered                                                  |
| a status the destination calls permanent| Refused, 410 included: the operator's word comes first     |
| 410                                     | Gone                                                       |
| 429, 503                                | Failed, with the wait that a readable Retry-After asks for |
| 3xx                                     | Failed; never followed, the detail names the Location host |
| any other status                        | Failed                                                     |
| no usable answer                        | Failed, with the sender's error class                      |

Retry-After counts on 429 and 503 only. There it speaks for the whole destination, which is held back; on any
other status (409 while the first request still runs, say) it speaks for one request, and the schedule of
`relay.rules.backoff` is late enough for that.
"""

import re
from datetime import UTC, datetime
from http import HTTPStatus
from typing import assert_never
from urllib.parse import urlsplit

from relay.model import Answer, Delivered, ErrorClass, Failed, Fault, Gone, Outcome, Refused, Result

DETAIL_CHARACTERS = 500

_SECONDS = re.compile(r"0*([0-9]{1,10})")  # 10 digits are 300 years; more is nonsense, not patience
_HOST = re.compile(r"[a-z0-9._:-]{1,253}")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)"
_DAY = r"(?P<day>[0-3][0-9])"
_HTTP_DATES = (
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), {_DAY} {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"),
    re.compile(rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, {_DAY}-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"),
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH} (?P<day>[ 0-3][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)


def classify(result: Result, permanent_statuses: frozenset[int], now_epoch_s: float) -> Outcome:
    """The outcome of one attempt, by the table above.

    `now_epoch_s` (seconds since 1970) only measures a Retry-After date when the answer has no readable Date.
    Details are one line: no control character, no query string, nothing of the receiver's text but a host.
    """
    match result:
        case Fault(error_class, detail):
            return Failed(error_class, _one_line(detail))
        case Answer(status):
            if 200 <= status <= 299:
                return Delivered()
            detail = _status_line(result)
            if status in permanent_statuses:
                return Refused(ErrorClass.STATUS, detail)
            if status == 410:
                return Gone(detail)
            return Failed(ErrorClass.STATUS, detail, asked_wait_s(result, now_epoch_s))
        case _:
            assert_never(result)


def asked_wait_s(result: Result, now_epoch_s: float) -> float | None:
    """For how many seconds from now a 429 or 503 asks its whole destination to be left alone; not capped.

    A date is measured against the answer's own Date where that is readable, so that neither clock needs to
    be right; otherwise against `now_epoch_s`.
    """
    if not isinstance(result, Answer) or result.status not in {429, 503}:
        return None
    value = result.headers.get("retry-after")
    if value is None:
        return None
    sent_epoch_s = _http_date_epoch_s(result.headers.get("date", "").strip(" \t"), now_epoch_s)
    return retry_after_s(value, now_epoch_s if sent_epoch_s is None else sent_epoch_s)


def retry_after_s(value: str, now_epoch_s: float) -> float | None:
    """Seconds that a Retry-After value asks for, 0 for a date in the past, None for what is neither form.

    RFC 9110 section 10.2.3: delay-seconds, or an HTTP-date in any of the three forms of section 5.6.7.
    """
    text = value.strip(" \t")
    if seconds := _SECONDS.fullmatch(text):
        return float(seconds[1])
    date_epoch_s = _http_date_epoch_s(text, now_epoch_s)
    return None if date_epoch_s is None else max(0.0, date_epoch_s - now_epoch_s)


def _http_date_epoch_s(text: str, now_epoch_s: float) -> float | None:
    date = next((found for form in _HTTP_DATES if (found := form.fullmatch(text))), None)
    if date is None:
        return None
    year = int(date["year"])
    if len(date["year"]) == 2:
        year = _full_year(year, int(1970 + now_epoch_s / 31_556_952))
    second = min(int(date["second"]), 59)  # a leap second is legal in a date, and unknown to datetime
    try:
        moment = datetime(
            year,
            _MONTHS.index(date["month"]) + 1,
            int(date["day"]),
            int(date["hour"]),
            int(date["minute"]),
            second,
            tzinfo=UTC,
        )
    except ValueError:  # 31 February
        return None
    return moment.timestamp()


def _full_year(two_digits: int, this_year: int) -> int:
    """The year with these last digits that is less than 50 years ago and at most 50 years ahead."""
    return this_year + (two_digits - this_year + 49) % 100 - 49


def _status_line(answer: Answer) -> str:
    try:
        line = f"{answer.status} {HTTPStatus(answer.status).phrase}"
    except ValueError:
        line = f"{answer.status}, a status that HTTP does not define"
    location = answer.headers.get("location")
    if 300 <= answer.status <= 399 and location is not None:
        line += f", not followed to {_location_host(location)}"
    return line


def _location_host(location: str) -> str:
    try:
        host = urlsplit(location).hostname
    except ValueError:
        return "a Location that is not a URL"
    if host is None:
        return "another path of the same host"
    return f"host {host}" if _HOST.fullmatch(host) else "a Location whose host is not a name"


def _one_line(text: str) -> str:
    kept = text[:DETAIL_CHARACTERS]
    return kept if kept.isprintable() else "".join(c if c.isprintable() else " " for c in kept)
