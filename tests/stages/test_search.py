"""Where the search for due jobs of one destination goes on."""

from datetime import UTC, datetime, timedelta

import pytest

from relay.model import Room
from relay.rows import START, FirstDue, Looked, Mark, Range
from relay.search import WIDEST, Search

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOM = Room(8, 4)
SWEPT = Mark(NOW - timedelta(seconds=0.1))


def asked(search: Search, priority: int, *, slow: bool = True) -> Range:
    """The range of first attempts that it asks for."""
    ranges = search.ranges("shop", ROOM, 1 << 20, slow=slow)
    [found] = [each for each in ranges if each.priority == priority and not each.retries]
    return found


def look(search: Search, rows: int, *, filled: bool = True, at: datetime = NOW) -> bool:
    """What a claim saw of priority 1: so many rows, the last of them at that time."""
    return search.saw([Looked("shop", 1, rows, Mark(at, 7))], ROOM, sated=False, filled=filled)


def found(search: Search, mark: Mark) -> None:
    """The scout saw a row of priority 1 behind this place."""
    search.found(FirstDue("shop", 1, retries=False, before=mark))


def test_it_asks_for_every_priority_first_attempts_and_retries_with_as_many_rows_as_there_is_room_for() -> None:
    ranges = Search().ranges("shop", ROOM, 1 << 20, slow=False)
    assert [(each.priority, each.retries, each.width) for each in ranges] == [
        (priority, retries, 4 if retries else 8) for priority in range(4) for retries in (False, True)
    ]


def test_where_no_retry_may_start_it_asks_for_none() -> None:
    assert not any(each.retries for each in Search().ranges("shop", Room(8, 0), 1 << 20, slow=False))


def test_while_claims_are_slow_it_begins_a_little_before_what_it_saw_last_and_else_at_the_front() -> None:
    search = Search()
    look(search, 8)
    assert asked(search, 1).after == SWEPT
    assert asked(search, 2).after == asked(search, 1, slow=False).after == START


def test_one_claim_in_seven_begins_two_seconds_before_what_it_saw_last() -> None:
    search = Search()
    look(search, 8)
    longer = Mark(NOW - timedelta(seconds=2))
    assert [asked(search, 1).after for _ in range(14)] == [*[SWEPT] * 6, longer] * 2


def test_it_looks_further_after_the_last_row_twice_as_far_each_time_and_only_where_there_was_more() -> None:
    search = Search()
    widths: list[int] = []
    while len(widths) < 12:
        assert look(search, WIDEST, filled=False)
        [only] = search.ranges("shop", ROOM, 1 << 20, slow=False)
        assert (only.priority, only.after) == (1, Mark(NOW, 7))
        widths.append(only.width)
    assert widths == [min(WIDEST, 16 << n) for n in range(12)]
    assert not look(search, 1, filled=False)
    assert asked(search, 1).width == 8


@pytest.mark.parametrize("filled", [True, False])
def test_it_does_not_look_further_where_a_claim_had_no_more_room_or_saw_all(*, filled: bool) -> None:
    assert not look(Search(), 8 if filled else 7, filled=filled)


def test_it_begins_where_the_scout_saw_a_row_that_was_committed_late_though_a_claim_was_under_way() -> None:
    search = Search()
    look(search, 8)
    late = Mark(NOW - timedelta(minutes=1), 3)
    asked(search, 1)
    found(search, late)
    look(search, 8)
    assert asked(search, 1).after == late
    look(search, 8)
    assert asked(search, 1).after == SWEPT


def test_what_the_scout_saw_behind_the_place_it_begins_at_changes_nothing() -> None:
    search = Search()
    look(search, 8)
    found(search, Mark(NOW, 3))
    assert asked(search, 1).after == SWEPT


def test_where_it_has_never_been_it_begins_with_what_the_scout_saw() -> None:
    search = Search()
    found(search, Mark(NOW, 3))
    assert asked(search, 1).after == Mark(NOW, 3)
