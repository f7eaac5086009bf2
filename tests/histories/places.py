"""Where a history can stop the relay's own statements: gates written into the text of the real files.

A gate is an advisory lock of (actor, place). Whoever holds it, stops the actor there, with whatever the actor has
locked so far and with the snapshot it began with.
"""

from collections.abc import Mapping
from dataclasses import dataclass

GATE = b"""
CREATE SCHEMA histories;
-- Without the lock timeout of the transaction: whoever is stopped here must not give up, as a claim soon would.
CREATE FUNCTION histories.gate(place integer) RETURNS boolean LANGUAGE plpgsql VOLATILE SET lock_timeout = 0 AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(current_setting('histories.actor', true)::integer, place);
    RETURN true;
END
$$;
"""


@dataclass(frozen=True)
class Place:
    """A point in one statement: `anchor` is the text of the file that stands there, `gated` the same with a gate."""

    name: str
    statement: str
    anchor: str
    gated: str


# OFFSET 0 keeps the planner from moving the gate to where it would stop at another moment.
PLACES = (
    Place("claim: after its snapshot", "claim", "WHERE NOT EXISTS (SELECT FROM outbox.destination",
          "WHERE {gate} AND NOT EXISTS (SELECT FROM outbox.destination"),
    Place("claim: doorbells locked", "claim", "FROM lane l\n", "FROM (SELECT * FROM lane WHERE {gate} OFFSET 0) l\n"),
    Place("claim: holder found", "claim", "FROM head h\n", "FROM (SELECT * FROM head WHERE {gate} OFFSET 0) h\n"),
    Place("claim: holders locked", "claim", "attempts = j.attempts + 1\n      FROM batch b\n",
          "attempts = j.attempts + 1\n      FROM (SELECT * FROM batch WHERE {gate} OFFSET 0) b\n"),
    Place("claim: holders started", "claim", "FROM batch b\n     WHERE j.id = ANY (b.block_ids)",
          "FROM (SELECT * FROM batch WHERE {gate} OFFSET 0) b\n     WHERE j.id = ANY (b.block_ids)"),
    Place("settle: outcome written", "settle", "SELECT s.id, s.claims FROM settled s\n",
          "SELECT s.id, s.claims FROM settled s WHERE {gate}\n"),
    Place("reclaim: lapsed jobs locked", "reclaim", "FROM lapsed l\n",
          "FROM (SELECT * FROM lapsed WHERE {gate} OFFSET 0) l\n"),
    Place("second statement: after its snapshot", "settle_lanes", "FROM lane l\n",
          "FROM (SELECT * FROM lane WHERE {gate} OFFSET 0) l\n"),
    Place("second statement: next holder found", "settle_lanes", "FROM batch b\n WHERE j.id",
          "FROM (SELECT * FROM batch WHERE {gate} OFFSET 0) b\n WHERE j.id"),
)  # fmt: skip


def places(*statements: str) -> list[int]:
    """The numbers of the places in these statements."""
    return [number for number, place in enumerate(PLACES) if place.statement in statements]


def gated(statements: Mapping[str, bytes]) -> dict[str, bytes]:
    """The statements that have places, with their gates.

    Raises ValueError when an anchor does not stand in its file exactly once: the file has changed, and the place
    must be found anew.
    """
    texts = {place.statement: statements[place.statement].decode() for place in PLACES}
    for number, place in enumerate(PLACES):
        text = texts[place.statement]
        if text.count(place.anchor) != 1:
            raise ValueError(
                f"{place.statement}.sql has {place.anchor!r} {text.count(place.anchor)} times instead of once; "
                f"say in {__name__} where {place.name!r} is now"
            )
        texts[place.statement] = text.replace(place.anchor, place.gated.format(gate=f"histories.gate({number})"))
    return {name: text.encode() for name, text in texts.items()}
