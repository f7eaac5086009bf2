"""What an operator who has just been woken should look at first. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from relay.rules.why import duration
from relay.web.admin.desk import DestinationView, Overview

# A due job that has waited longer than this is news; a claim and an attempt take a moment.
_LATE_S = 60.0
_BREAKERS = {
    "open": "the breaker of this replica is open: its last attempts failed, and it waits before it tries one",
    "held": "its receiver asked to be left alone for a while (Retry-After); this replica waits",
    "half_open": "this replica tries one job after a pause, and waits for its answer",
}


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence about a destination, or about none; `dead` where its dead letters are what to look at."""

    destination: str | None
    sentence: str
    dead: bool = False


def attention(overview: Overview) -> list[Remark]:
    """The remarks, destination by destination."""
    remarks = [remark for each in overview.destinations for remark in _about(each, overview.cap)]
    if overview.unrouted:
        sentence = f"{_many(overview.unrouted, overview.cap)} unrouted: nobody subscribed to the topic"
        remarks.append(Remark(None, sentence))
    return remarks


def _about(each: DestinationView, cap: int) -> Iterator[Remark]:
    status, name = each.status, each.status.name
    if status.paused_why:
        yield Remark(name, f"paused: {status.paused_why}")
    if sentence := _BREAKERS.get(each.breaker or ""):
        yield Remark(name, sentence)
    if status.dead:
        standing = f"; {_entities(status.standing_lanes, cap)} behind them" if status.standing_lanes else ""
        letters = "dead letter" if status.dead == 1 else "dead letters"
        yield Remark(name, f"{_number(status.dead, cap)} {letters}{standing}", dead=True)
    if (status.oldest_due_age_s or 0.0) > _LATE_S:
        yield Remark(name, f"{_many(status.due, cap)} due, the oldest for {duration(status.oldest_due_age_s or 0.0)}")
    if not status.registered:
        yield Remark(name, "has jobs, but is not registered")


def _entities(lanes: int, cap: int) -> str:
    return "1 entity stands still" if lanes == 1 else f"{_number(lanes, cap)} entities stand still"


def _many(number: int, cap: int) -> str:
    return f"{_number(number, cap)} {'job is' if number == 1 else 'jobs are'}"


def _number(number: int, cap: int) -> str:
    return f"{number:,}+" if number >= cap else f"{number:,}"
