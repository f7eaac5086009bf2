"""The pure rules: a value or the one error that they name, whatever the text."""

import math
import re
from contextlib import suppress
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from relay.model import Answer, ErrorClass, Fault
from relay.rules import egress
from relay.rules.classify import asked_wait_s, classify, retry_after_s
from relay.rules.moment import moment
from relay.rules.request import header_fault, valid_traceparent, valid_tracestate
from relay.rules.signing import secret_bytes
from tests.fuzz.case import came_to, texts

_DIGITS = st.from_regex(r"[0-9]{1,12}", fullmatch=True)
_DATES = st.from_regex(
    r"(Mon|Tuesday|Sun), ?[0-3][0-9][ -](Jan|Feb|Xxx)[ -][0-9]{2,4} [0-2][0-9]:[0-6][0-9]:[0-6][0-9] (GMT|UTC)",
    fullmatch=True,
)
_AGES = st.from_regex(r"[0-9]{1,7}[smhdw]", fullmatch=True)
_HOSTS = st.from_regex(r"[0-9a-fx:.\[\]%]{1,30}", fullmatch=True)
_TRACES = st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-x)?", fullmatch=True)
_text = st.one_of(texts, _DIGITS, _DATES, _AGES, _HOSTS, _TRACES, st.datetimes().map(str))
_now = st.floats(0, 4e9)


def _retry_after(text: str, now_epoch_s: float) -> None:
    wait_s = retry_after_s(text, now_epoch_s)
    assert wait_s is None or (wait_s >= 0 and math.isfinite(wait_s))


def _answer(text: str, now_epoch_s: float) -> None:
    for status in (101, 302, 410, 429, 503, 599, 999):
        result = Answer(status, {"location": text, "retry-after": text, "date": text}, text.encode("utf-8", "replace"))
        _one_line(getattr(classify(result, frozenset({599}), now_epoch_s), "detail", ""))
        wait_s = asked_wait_s(result, now_epoch_s)
        assert wait_s is None or (wait_s >= 0 and math.isfinite(wait_s))
    _one_line(getattr(classify(Fault(ErrorClass.READ, text), frozenset(), now_epoch_s), "detail", ""))


def _one_line(detail: str) -> None:
    assert detail.isprintable()
    assert len(detail) <= 500
    detail.encode()


def _moment(text: str, _: float) -> None:
    with suppress(ValueError):
        assert isinstance(moment(text), datetime | timedelta)


def _header(text: str, _: float) -> None:
    if header_fault("X-A", text) is None:
        assert re.fullmatch(r"[\t -~]*", text)
    if header_fault(text, "x") is None:
        assert re.fullmatch(r"[!-~]+", text)
        assert ":" not in text


def _traces(text: str, _: float) -> None:
    if valid_traceparent(text) or valid_tracestate(text):
        assert re.fullmatch(r"[\t -~]*", text)


def _secret(text: str, _: float) -> None:
    said = ""
    try:
        assert 24 <= len(secret_bytes("whsec_" + text)) <= 64
    except ValueError as error:
        said = str(error)
    assert len(text) < 12 or text not in said


def _host(text: str, _: float) -> None:
    assert isinstance(egress.host_fault(text), str | None)
    host = egress.canonical_host(text)
    if egress.is_address(host):
        for policy in ("any", "public", ("10.0.0.0/8", "::1/128")):
            assert isinstance(egress.refusal(host, policy), str | None)


RULES = {
    "waits": _retry_after, "outcomes": _answer, "moments": _moment, "headers": _header, "traces": _traces,
    "secrets": _secret, "hosts": _host,
}  # fmt: skip


# A text as it is, twice, and its halves: what is nearly right breaks more than what is not.
EACH = 4 * len(RULES)


@given(_text, _now)
def check(text: str, now_epoch_s: float) -> None:
    """One text for each of the rules."""
    half = len(text) // 2
    for each in (text, text + text, text[:half], text[half:]):
        for name, rule in RULES.items():
            came_to(name)
            rule(each, now_epoch_s)
