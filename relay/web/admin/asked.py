"""What a query or a form asks for, as values; HTTPException 400 with a sentence for what is none."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException

from relay.bulk import Selection
from relay.dead import Place
from relay.rules.moment import moment

FILTERS = ("destination", "topic", "entity", "since", "until", "error")
_LARGEST = 2**63 - 1


def text(given: Mapping[str, str], name: str) -> str | None:
    """What is given under this name; None for nothing, and for blanks."""
    found = given.get(name, "").strip()
    if "\0" in found:
        raise HTTPException(400, f"{name} holds a NUL, which no text in the database can")
    return found or None


def texts(given: Mapping[str, str]) -> dict[str, str]:
    """The filters that are not empty."""
    return {name: found for name in FILTERS if (found := text(given, name))}


def selection(filters: Mapping[str, str]) -> Selection:
    """The filters of `relay dead list`."""
    try:
        since, until = (moment(filters[name]) if name in filters else None for name in ("since", "until"))
    except (ValueError, OverflowError) as error:
        raise HTTPException(400, str(error)) from error
    return Selection(
        destination=filters.get("destination"),
        topic=filters.get("topic"),
        entity_key=filters.get("entity"),
        since=since,
        until=until,
        error=filters.get("error"),
    )


def number(digits: str, name: str, largest: int = _LARGEST) -> int:
    """A whole number from 1 to `largest`."""
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and 1 <= int(digits) <= largest):
        raise HTTPException(400, f"{name}: {digits[:40]!r} is not a whole number from 1 to {largest}")
    return int(digits)


def place(given: Mapping[str, str]) -> Place | None:
    """The place that `as_place` wrote into `after`."""
    found = text(given, "after")
    if found is None:
        return None
    destination, _, job_id = found.rpartition(":")
    return destination, number(job_id, "after")


def as_place(after: Place | None) -> str | None:
    """A place as text, for `after=` of the next question."""
    return None if after is None else f"{after[0]}:{after[1]}"
