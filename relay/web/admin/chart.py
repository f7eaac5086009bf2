"""Charts of the last hour as coordinates; the template draws them as inline SVG. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relay.web.admin.traffic import MINUTES, Minute

WIDTH, HEIGHT = 600, 120
_STEP = WIDTH / MINUTES


@dataclass(frozen=True, slots=True)
class Bar:
    """One minute's attempts, in units of the drawing: what was delivered from the ground, what failed on top."""

    x: float
    width: float
    delivered_y: float
    delivered_height: float
    failed_y: float
    failed_height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """`top` is the value at the upper edge. `lines` are the `points` of polylines, one for each stretch with values."""

    top: float
    bars: Sequence[Bar] = ()
    p50: Sequence[str] = ()
    p95: Sequence[str] = ()


def throughput(hour: Sequence[Minute]) -> Chart:
    """Attempts a minute, stacked."""
    top = _round_up(max((each.delivered + each.failed for each in hour), default=0))
    return Chart(top, bars=[_bar(place, each, HEIGHT / top) for place, each in enumerate(hour)])


def latency(hour: Sequence[Minute]) -> Chart:
    """How long attempts took, in seconds: the median and the 95th percentile of each minute."""
    top = _round_up(max((each.p95_s or 0.0 for each in hour), default=0.0), smallest=0.001)
    return Chart(top, p50=_lines(hour, lambda each: each.p50_s, top), p95=_lines(hour, lambda each: each.p95_s, top))


def _bar(place: int, each: Minute, scale: float) -> Bar:
    delivered, failed = each.delivered * scale, each.failed * scale
    return Bar(
        round(place * _STEP + 1, 1), round(_STEP - 2, 1), round(HEIGHT - delivered, 1), round(delivered, 1),
        round(HEIGHT - delivered - failed, 1), round(failed, 1),
    )  # fmt: skip


def _lines(hour: Sequence[Minute], value: Callable[[Minute], float | None], top: float) -> list[str]:
    """A line ends where a minute has no value; one lonely minute is a short level line."""
    lines: list[list[str]] = [[]]
    for place, each in enumerate(hour):
        found = value(each)
        if found is None:
            lines.append([])
            continue
        y = round(HEIGHT - found / top * HEIGHT, 1)
        left, right = round(place * _STEP + 1, 1), round((place + 1) * _STEP - 1, 1)
        lines[-1] += [f"{left},{y}", f"{right},{y}"]
    return [" ".join(points) for points in lines if points]


def _round_up(value: float, smallest: float = 1.0) -> float:
    """1, 2 or 5 times a power of ten, not below `value`."""
    if value <= smallest:
        return smallest
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value * (1 - 1e-9))
