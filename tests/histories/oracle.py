"""What must hold at the end of each history, computed from the table and from the record of every change in it."""

from pathlib import Path

from psycopg import AsyncConnection

_OVERTAKEN = Path(__file__).parents[1] / "chaos" / "overtaken.sql"
# Nobody waits any more: a job is final, or stands behind a dead one that holds the lane.
_UNFINISHED = b"""
SELECT j.id, j.entity_key, j.status
  FROM outbox.job j
 WHERE j.destination = %(name)s
   AND j.status NOT IN ('done', 'dead', 'discarded')
   AND NOT EXISTS (SELECT FROM outbox.job d
                    WHERE d.status = 'dead' AND d.holds_lane
                      AND d.destination = j.destination AND d.entity_key = j.entity_key AND d.id < j.id)
 ORDER BY j.id
"""
_VANISHED = b"""
SELECT h.job_id, h.entity_key
  FROM chaos.history h
 WHERE h.destination = %(name)s AND h.was IS NULL AND NOT EXISTS (SELECT FROM outbox.job j WHERE j.id = h.job_id)
"""
# In a lane, starts and ends of running take turns.
_OVERLAPS = b"""
SELECT job_id, entity_key, other
  FROM (SELECT job_id, entity_key, status,
               lag(job_id) OVER lane AS other, lag(status) OVER lane AS before
          FROM chaos.history
         WHERE destination = %(name)s AND (status = 'running' OR was = 'running')
        WINDOW lane AS (PARTITION BY entity_key ORDER BY at)) turn
 WHERE status = 'running' AND before = 'running'
"""


async def judge(connection: AsyncConnection, name: str) -> list[str]:
    """A sentence for everything that did not hold in the history of this name, after its end."""
    unfinished = await (await connection.execute(_UNFINISHED, {"name": name})).fetchall()
    vanished = await (await connection.execute(_VANISHED, {"name": name})).fetchall()
    overlaps = await (await connection.execute(_OVERLAPS, {"name": name})).fetchall()
    return [
        *(f"job {id_} of {lane} is left {status}, and nothing will wake it" for id_, lane, status in unfinished),
        *(f"job {id_} of {lane} was committed, and is gone" for id_, lane in vanished),
        *(f"job {id_} of {lane} started while {other} ran" for id_, lane, other in overlaps),
    ]


async def overtaken(connection: AsyncConnection) -> dict[str, list[str]]:
    """By name of the history: claims that began while a lower unfinished job of the lane could be seen."""
    found: dict[str, list[str]] = {}
    for id_, name, lane, lower, _ in await (await connection.execute(_OVERTAKEN.read_bytes())).fetchall():
        found.setdefault(name, []).append(f"job {id_} of {lane} was claimed while {lower} before it was unfinished")
    return found
