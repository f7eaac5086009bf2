"""How the demo looks while it runs: a live screen on a terminal, a line a second elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relay.demo.report import SUBSCRIPTIONS, Latency


@dataclass(frozen=True, slots=True)
class Moment:
    """The state at `elapsed_s` seconds; jobs, except `requests` and `accepted`, which are requests so far."""

    elapsed_s: float
    committed: int
    delivered: int
    in_flight: int
    backlog: int
    dead: int
    retries: int
    inversions: int
    latency: Latency
    requests: dict[str, int]
    accepted: dict[str, int]


class View(Protocol):
    """What the story needs of a screen."""

    def show(self, moment: Moment) -> None:
        """Show the newest state."""

    def note(self, text: str) -> None:
        """Say that something happened."""


class Lines:
    """One line a second."""

    def __init__(self) -> None:
        self._next_s = 1.0

    def show(self, moment: Moment) -> None:
        """Print a line when the next second has begun."""
        if moment.elapsed_s >= self._next_s:
            self._next_s = int(moment.elapsed_s) + 1.0
            print(f"{int(moment.elapsed_s):>4} s  {_headline(moment)}", flush=True)

    def note(self, text: str) -> None:
        """Print it."""
        print(f"        {text}", flush=True)


class Screen:
    """A table that stays in place."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._notes: list[str] = []
        self._before: Moment | None = None
        self._rates: dict[str, float] = dict.fromkeys(SUBSCRIPTIONS, 0.0)

    def show(self, moment: Moment) -> None:
        """Draw the state; rates are those of the last second."""
        if self._before is None or moment.elapsed_s - self._before.elapsed_s >= 1.0:
            self._measure(moment)
        table = Table("destination", "topics", "delivered", "refused", "per second")
        for name, topics in SUBSCRIPTIONS.items():
            accepted = moment.accepted.get(name, 0)
            refused = moment.requests.get(name, 0) - accepted
            table.add_row(name, " ".join(topics), f"{accepted}", f"{refused}", f"{self._rates[name]:.0f}")
        order = "order kept" if moment.inversions == 0 else f"ORDER BROKEN {moment.inversions} times"
        self._live.update(
            Group(
                Text(f"{moment.elapsed_s:.0f} s  {_headline(moment)}"),
                table,
                Text(order, style="green" if moment.inversions == 0 else "bold red"),
                *(Text(note, style="yellow") for note in self._notes),
            )
        )

    def note(self, text: str) -> None:
        """Keep it below the table."""
        self._notes.append(text)

    def _measure(self, moment: Moment) -> None:
        if self._before is not None:
            passed_s = moment.elapsed_s - self._before.elapsed_s
            for name in self._rates:
                news = moment.accepted.get(name, 0) - self._before.accepted.get(name, 0)
                self._rates[name] = news / passed_s
        self._before = moment


@contextmanager
def open_view(*, plain: bool) -> Iterator[View]:
    """The live screen on a terminal unless `plain`, else lines."""
    if plain or not sys.stdout.isatty():
        yield Lines()
        return
    with Live(refresh_per_second=4) as live:
        yield Screen(live)


def _headline(moment: Moment) -> str:
    p50, p99 = moment.latency.p50, moment.latency.p99
    latency = f"  latency p50 {p50:.1f} ms, p99 {p99:.1f} ms" if p50 is not None and p99 is not None else ""
    return (
        f"committed {moment.committed}  delivered {moment.delivered}  in flight {moment.in_flight}"
        f"  backlog {moment.backlog}  retries {moment.retries}  dead {moment.dead}{latency}"
    )
