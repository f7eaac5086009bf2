"""What every transaction that changes a job of a lane owes the lane, beside claims and settles."""

from collections.abc import Collection

from relay import rows
from relay.database import Transaction
from relay.errors import RelayError

Lane = tuple[str, str]

_TRIES = 10


class RestlessError(RelayError):
    """The holders of some lanes change faster than they can be locked."""


async def lock(transaction: Transaction, lanes: Collection[Lane]) -> None:
    """Holds the mutex of every lane until the transaction ends: the row of its holder, whoever that is.

    Raises RestlessError.

    Whoever changes a job that need not be the holder comes here before `go_on`: with the lock of that job alone, a
    settle and this transaction could each see the other's job unfinished, and neither would wake the next one.
    """
    if not lanes:
        return
    ordered = sorted(lanes)
    parameters = {"destinations": [lane[0] for lane in ordered], "entity_keys": [lane[1] for lane in ordered]}
    locked: dict[Lane, int] = {}
    for _ in range(_TRIES):
        found = await transaction.fetch("lock_lanes", parameters)
        # Asked until two answers agree: the holder that was found is the one that is held.
        if all(row[3] and locked.get((row[0], row[1])) == row[2] for row in found):
            return
        locked = {(row[0], row[1]): row[2] for row in found if row[3]}
    raise RestlessError("entities of these jobs move on faster than they can be held; try again")


async def go_on(transaction: Transaction, lanes: Collection[Lane]) -> None:
    """Makes the next job of each lane due: the second statement; see settle_lanes.sql."""
    if lanes:
        touched = dict.fromkeys(lanes, False)
        await transaction.fetch("settle_lanes", {**rows.lane_parameters(touched), "locked_by": "", "lease_s": 0.0})
