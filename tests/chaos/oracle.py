"""What must hold, computed from the receiver's record and from the table and its history."""

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from tests.chaos.fleet import Fleet
from tests.chaos.receiver import LATE, Arrival

Row = tuple[Any, ...]

_JOBS = b"""
SELECT id, destination, entity_key, status, holds_lane, idempotency_key, convert_to(payload::text, 'UTF8')
  FROM outbox.job
"""
# Nothing is old enough to be deleted.
_VANISHED = b"""
SELECT h.job_id, h.destination, h.entity_key
  FROM chaos.history h
 WHERE h.was IS NULL AND NOT EXISTS (SELECT FROM outbox.job j WHERE j.id = h.job_id)
"""
# What the relay gave up at its deadline is sent again, and the receiver, slow on a busy machine, may have accepted it.
_GIVEN_UP = b"SELECT job_id, attempt FROM outbox.attempt WHERE error_class = 'deadline'"


@dataclass
class Verdict:
    """The figures of a run; `faults` says in words what was broken, and is empty when the oracle is content."""

    seed: int
    jobs: int = 0
    delivered: int = 0
    dead: int = 0
    behind_dead: int = 0
    lost: int = 0
    attempts: int = 0
    duplicates: int = 0
    in_flight_at_kills: int = 0
    inversions: int = 0
    overlaps: int = 0
    samples: int = 0
    doubled: int = 0
    overtaken_claims: int = 0
    late_sends: int = 0
    loose_late: int = 0
    healed: int = 0
    altered: int = 0
    kills: int = 0
    faults: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


async def judge(connection: AsyncConnection, arrivals: list[Arrival], verdict: Verdict, fleet: Fleet) -> None:
    """Fills the verdict. The fleet knows which of its replicas was frozen, and when."""
    # A run ends before autovacuum has looked: planned without, the search for overtaken claims takes minutes.
    await connection.execute("ANALYZE outbox.job, chaos.history")
    rows = await (await connection.execute(_JOBS)).fetchall()
    jobs = {row[0]: row for row in rows}
    by_job: dict[int, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_job[arrival.sequence].append(arrival)
    given_up = set(await (await connection.execute(_GIVEN_UP)).fetchall())
    _fates(rows, by_job, given_up, verdict, fleet)
    for id_, destination, entity_key in await (await connection.execute(_VANISHED)).fetchall():
        verdict.jobs += 1
        verdict.lost += 1
        verdict.faults.append(f"job {id_} of {destination}/{entity_key} was committed, and is gone")
    _same_bytes(jobs, arrivals, verdict)
    _order(arrivals, verdict, fleet)
    overtaken = await (await connection.execute((Path(__file__).parent / "overtaken.sql").read_bytes())).fetchall()
    verdict.overtaken_claims = len(overtaken)
    _conclude(verdict, overtaken)


def _fates(
    rows: list[Row], by_job: dict[int, list[Arrival]], given_up: set[Row], verdict: Verdict, fleet: Fleet
) -> None:
    standing = {(row[1], row[2]) for row in rows if row[3] == "dead" and row[4]}
    for id_, destination, entity_key, status, *_ in rows:
        accepted = [a for a in by_job[id_] if a.status == 204]
        verdict.jobs += 1
        verdict.attempts += len(by_job[id_])
        if status == "done":
            verdict.delivered += 1
            # Who is frozen until after the answer finds it in time: its own clock stood still too.
            if not accepted and not any(a.status == LATE and fleet.frozen(a.replica, a.ended_s) for a in by_job[id_]):
                verdict.lost += 1
                verdict.faults.append(f"job {id_} is done, and the receiver never accepted it")
        elif status == "dead":
            verdict.dead += 1
        elif status in {"pending", "blocked"} and (destination, entity_key) in standing:
            verdict.behind_dead += 1
        else:
            verdict.lost += 1
            verdict.faults.append(f"job {id_} of {destination}/{entity_key} ended as {status}")
        if in_time := [a for a in accepted if (id_, a.attempt) not in given_up]:
            first_s = min(a.ended_s or 0.0 for a in in_time)
            verdict.duplicates += sum(a.began_s > first_s for a in by_job[id_])


def _same_bytes(jobs: dict[int, Row], arrivals: list[Arrival], verdict: Verdict) -> None:
    for arrival in arrivals:
        row = jobs.get(arrival.sequence)
        if row is None or (row[5], row[6]) != (arrival.key, arrival.body):
            verdict.altered += 1
            verdict.faults.append(f"job {arrival.sequence} was never committed, or not with this key and body")


def _order(arrivals: list[Arrival], verdict: Verdict, fleet: Fleet) -> None:
    lanes: dict[tuple[str, str], list[Arrival]] = defaultdict(list)
    for arrival in sorted(arrivals, key=lambda a: a.began_s):
        if arrival.entity_key is not None and not arrival.redrive:
            lanes[arrival.destination, arrival.entity_key].append(arrival)
    for (destination, entity_key), lane in lanes.items():
        # A process frozen between its last look at the lease and its send is late, and nobody can prevent it.
        late = {id(a) for a in _behind(lane) if fleet.just_thawed(a.replica, a.began_s)}
        verdict.late_sends += len(late)
        prompt = [arrival for arrival in lane if id(arrival) not in late]
        _one_after_the_other(f"{destination}/{entity_key}", prompt, verdict)
        if entity_key.startswith("loose"):
            verdict.loose_late += len(_behind(prompt))
            continue
        for arrival in _behind(prompt):
            verdict.inversions += 1
            verdict.faults.append(f"job {arrival.sequence} of {destination}/{entity_key} arrived after a later one")


def _behind(lane: list[Arrival]) -> list[Arrival]:
    """The arrivals that came after one with a higher sequence had begun."""
    highest, behind = 0, []
    for arrival in lane:
        if arrival.sequence < highest:
            behind.append(arrival)
        highest = max(highest, arrival.sequence)
    return behind


def _one_after_the_other(lane_name: str, lane: list[Arrival], verdict: Verdict) -> None:
    for earlier, later in pairwise(lane):
        if earlier.sequence != later.sequence and earlier.status == 204 and later.began_s < (earlier.ended_s or 0.0):
            verdict.overlaps += 1
            verdict.faults.append(f"jobs {earlier.sequence} and {later.sequence} of {lane_name} overlapped")


def _conclude(verdict: Verdict, overtaken: list[Row]) -> None:
    for job_id, destination, entity_key, lower_id, at in overtaken:
        lane = f"{destination}/{entity_key}"
        verdict.faults.append(f"the claim of {job_id} of {lane} at {at} could see {lower_id} unfinished")
    if verdict.doubled:
        verdict.faults.append(f"two jobs of a lane ran at once, {verdict.doubled} times in {verdict.samples} samples")
    if verdict.healed:
        verdict.faults.append(f"{verdict.healed} lanes had to be healed")
    if verdict.duplicates > verdict.in_flight_at_kills:
        in_flight = verdict.in_flight_at_kills
        verdict.faults.append(f"{verdict.duplicates} duplicates, but {in_flight} in flight at the kills")
