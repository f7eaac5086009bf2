"""The last hour, from the counts of a replica; and its charts."""

from relay.telemetry.tally import Tally
from relay.web.admin import chart
from relay.web.admin.traffic import MINUTES, Minute, Traffic


def attempt(tally: Tally, destination: str, duration_s: float, *, delivered: bool) -> None:
    """One attempt has ended."""
    counts = tally.of[destination]
    counts.attempt_s.add(duration_s)
    if delivered:
        counts.delivered += 1
    else:
        counts.failed["status"] += 1


def test_an_hour_has_sixty_minutes_the_current_one_last() -> None:
    tally = Tally(["a", "b"])
    attempt(tally, "a", 0.02, delivered=True)
    traffic = Traffic(tally)
    attempt(tally, "a", 0.02, delivered=True)
    attempt(tally, "b", 0.02, delivered=False)
    traffic.turn()
    attempt(tally, "a", 0.02, delivered=True)
    hour = traffic.hour()
    assert [each.ago for each in hour] == list(range(59, -1, -1))
    assert [(each.delivered, each.failed) for each in hour[-3:]] == [(0, 0), (1, 1), (1, 0)]
    assert [each.delivered for each in traffic.hour("b")[-3:]] == [0, 0, 0]
    assert traffic.hour("nobody") == [Minute(ago, 0, 0, None, None) for ago in range(59, -1, -1)]


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    tally = Tally(["a"])
    traffic = Traffic(tally)
    attempt(tally, "a", 0.02, delivered=True)
    for _ in range(MINUTES - 1):
        traffic.turn()
    assert sum(each.delivered for each in traffic.hour()) == 1
    traffic.turn()
    assert sum(each.delivered for each in traffic.hour()) == 0
    assert len(traffic._past) == MINUTES


def test_the_success_ratio_is_of_one_destination_and_of_the_last_hour() -> None:
    tally = Tally(["a", "b"])
    traffic = Traffic(tally)
    assert traffic.success_ratio("a") is None
    for delivered in (True, True, True, False):
        attempt(tally, "a", 0.02, delivered=delivered)
    assert traffic.success_ratio("a") == 0.75
    assert traffic.success_ratio("b") is None


def test_percentiles_lie_in_the_class_of_the_value_that_they_are() -> None:
    tally = Tally(["a"])
    traffic = Traffic(tally)
    for duration_s in [0.02] * 90 + [3.0] * 10:
        attempt(tally, "a", duration_s, delivered=True)
    minute = traffic.hour()[-1]
    assert minute.p50_s is not None
    assert minute.p95_s is not None
    assert 0.01 < minute.p50_s <= 0.025
    assert 2.5 < minute.p95_s <= 5.0


def test_durations_above_every_class_are_the_last_bound() -> None:
    tally = Tally(["a"])
    traffic = Traffic(tally)
    attempt(tally, "a", 999.0, delivered=False)
    assert traffic.hour()[-1].p95_s == 30.0


def test_bars_fill_the_drawing_up_to_a_round_number() -> None:
    hour = [Minute(1, 30, 10, 0.01, 0.02), Minute(0, 0, 0, None, None)]
    drawn = chart.throughput(hour)
    assert drawn.top == 50
    [full, empty] = drawn.bars
    assert (full.delivered_height, full.failed_height) == (72.0, 24.0)
    assert full.delivered_y + full.delivered_height == chart.HEIGHT
    assert full.failed_y + full.failed_height == full.delivered_y
    assert (empty.delivered_height, empty.failed_height) == (0, 0)


def test_a_line_has_a_gap_where_there_was_nothing_to_measure() -> None:
    values = [0.01, 0.02, None, 0.04]
    hour = [Minute(3 - place, 1, 0, value, value) for place, value in enumerate(values)]
    drawn = chart.latency(hour)
    assert [len(points.split()) for points in drawn.p50] == [4, 2]
    assert drawn.top == 0.05


def test_an_hour_without_attempts_can_be_drawn() -> None:
    hour = [Minute(ago, 0, 0, None, None) for ago in range(59, -1, -1)]
    assert chart.latency(hour).p50 == []
    assert len(chart.throughput(hour).bars) == 60


def test_a_destination_that_the_configuration_gets_later_has_no_attempts_before() -> None:
    tally = Tally(["a"])
    traffic = Traffic(tally)
    traffic.turn()
    tally.configure(["a", "b"])
    attempt(tally, "b", 0.02, delivered=True)
    assert [each.delivered for each in traffic.hour()[-2:]] == [0, 1]
    traffic.turn()
    assert [each.delivered for each in traffic.hour("b")[-3:]] == [0, 1, 0]
    assert traffic.success_ratio("b") == 1.0
