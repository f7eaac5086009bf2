"""How long a look that vacuum makes slow rests."""

from relay.rules.rest import Rest


def test_one_slow_look_among_quick_ones_is_nothing_to_rest_after() -> None:
    rest = Rest()
    assert [rest.after(took_s) for took_s in (0.25, 0.0, 0.25, 0.0)] == [0.0] * 4


def test_after_two_slow_looks_it_is_twenty_times_the_shorter_one() -> None:
    rest = Rest()
    assert [rest.after(took_s) for took_s in (0.5, 0.25, 1.0)] == [0.0, 5.0, 5.0]


def test_it_is_half_a_minute_at_most() -> None:
    rest = Rest()
    assert [rest.after(60.0), rest.after(60.0)] == [0.0, 30.0]
