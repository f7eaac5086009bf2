"""Times as operators write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from relay.rules.moment import moment


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("45s", timedelta(seconds=45)),
        ("30m", timedelta(minutes=30)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T08:00Z", datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("2026-01-31T08:00+02:00", datetime(2026, 1, 31, 8, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_an_instant_or_how_long_ago(text: str, meant: datetime | timedelta) -> None:
    assert moment(text) == meant


@pytest.mark.parametrize("text", ["", "soon", "-2h", "2 h", "2w", "1e3s", "2026-13-01", "999999d", "9999999s"])
def test_anything_else_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither a time|longer ago"):
        moment(text)
