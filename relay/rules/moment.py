"""Times as operators write them."""

import re
from datetime import UTC, datetime, timedelta

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_LONGEST = timedelta(days=36_500)


def moment(text: str) -> datetime | timedelta:
    """An instant in ISO 8601, UTC where it names no zone; or how long ago, such as 30m, 2h, 7d.

    Raises ValueError, with a sentence, for anything else.
    """
    if age := re.fullmatch(r"(\d{1,6})([smhd])", text):
        ago = timedelta(**{_UNITS[age[2]]: int(age[1])})
        if ago > _LONGEST:
            raise ValueError(f"{text!r} is longer ago than {_LONGEST.days} days")
        return ago
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time such as 2026-01-31T08:00Z nor an age such as 30m, 2h, 7d"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
