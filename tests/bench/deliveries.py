"""The relay beside bare loops, the textbook design and its peers: the table, and the ratios that the gate reads."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.measure import Bench, Figures
from tests.bench.sides import LEAN_TEXTBOOK, ONE_A_LANE, PEERS, RELAY, SLOTS, TEXTBOOK, TWENTY_LANES

# A slow side needs fewer jobs for as many seconds of CPU time.
SHARES = {
    "textbook, our table": 0.2,
    "textbook, its own table": 0.2,
    "relay, 20 lanes": 0.4,
    "pgqueuer": 0.5,
    "faststream-outbox": 0.3,
    "procrastinate": 0.1,
}


@dataclass(frozen=True)
class Deliveries:
    """Of each side the turn with the median of the client's time, and the relay beside the bare loop in each pair."""

    by_side: Mapping[str, Figures]
    vs_bare: Sequence[float]

    @property
    def relay_vs_bare(self) -> float:
        """Deliveries for the bare loop's CPU time: the median of the pairs."""
        return statistics.median(self.vs_bare)


def paired(bare_ms: Sequence[float], relay_ms: Sequence[float]) -> list[float]:
    """Each measurement of the relay beside the mean of the bare loop's just before it and just after it.

    The speed of a machine that others share drifts by a third within minutes, so two figures a minute apart tell
    more of the machine than of what was measured.
    """
    around = itertools.pairwise(bare_ms)
    return [(before + after) / 2 / between for (before, after), between in zip(around, relay_ms, strict=True)]


def _median(turns: Sequence[Figures]) -> Figures:
    return sorted(turns, key=lambda figures: figures.client_ms)[len(turns) // 2]


def deliveries(bench: Bench, jobs: int, payload_bytes: int, *, pairs: int, rounds: int) -> Deliveries:
    """The relay and the bare loop by turns, so many pairs; then every other side, so many rounds."""
    bare, relay = [bench.bare("aiohttp", jobs, payload_bytes)], []
    for _ in range(pairs):
        relay.append(bench.deliveries(RELAY, jobs, payload_bytes))
        bare.append(bench.bare("aiohttp", jobs, payload_bytes))
    turns: list[Sequence[Figures]] = [bare, [bench.bare("sender", jobs, payload_bytes)], relay]
    others = (ONE_A_LANE, TWENTY_LANES, TEXTBOOK, LEAN_TEXTBOOK, *PEERS)
    by_round = [
        [bench.deliveries(side, int(jobs * SHARES.get(side.name, 1)), payload_bytes) for side in others]
        for _ in range(rounds)
    ]
    turns += zip(*by_round, strict=True)
    vs_bare = paired([each.client_ms for each in bare], [each.client_ms for each in relay])
    return Deliveries({each[0].side: _median(each) for each in turns}, vs_bare)


def table(found: Deliveries, payload_bytes: int) -> None:
    """Prints each side beside the bare loop and the textbook."""
    bare, textbook = found.by_side["bare aiohttp"], found.by_side[TEXTBOOK.name]
    print(f"\npayloads of {payload_bytes} bytes, {SLOTS} in flight, for each job:")
    print(f"{'':24}{'jobs':>7}{'jobs/s':>8}{'client ms':>11}{'bare/it':>9}{'PG ms':>8}{'textbook/it':>13}"
          f"{'statements':>12}{'pages':>7}{'WAL B':>7}{'dead':>6}{'twice':>7}")  # fmt: skip
    for each in found.by_side.values():
        vs_bare = found.relay_vs_bare if each.side == RELAY.name else bare.client_ms / each.client_ms
        print(f"{each.side:24}{each.jobs:7}{each.jobs / each.wall_s:8.0f}{each.client_ms:11.3f}{vs_bare:9.2f}", end="")
        if each.postgres_s:
            print(f"{each.postgres_ms:8.3f}{textbook.postgres_ms / each.postgres_ms:13.1f}"
                  f"{each.statements / each.jobs:12.2f}{each.buffers / each.jobs:7.0f}{each.wal_bytes / each.jobs:7.0f}"
                  f"{each.dead / each.jobs:6.2f}{each.duplicates:7}", end="")  # fmt: skip
        print(flush=True)
    print(f"{RELAY.name}: bare/it is the median of {', '.join(f'{ratio:.2f}' for ratio in found.vs_bare)}, each beside "
          "the bare loop just before it and just after it", flush=True)  # fmt: skip


def ratios(found: Deliveries) -> dict[str, object]:
    """What the last line says of deliveries."""
    by_side = found.by_side
    relay, textbook = by_side[RELAY.name], by_side[TEXTBOOK.name]
    return {
        "pg_cpu_vs_textbook": round(textbook.postgres_ms / relay.postgres_ms, 2),
        "pg_cpu_vs_textbook_ordered": round(textbook.postgres_ms / by_side[ONE_A_LANE.name].postgres_ms, 2),
        "pg_cpu_vs_lean_textbook": round(by_side[LEAN_TEXTBOOK.name].postgres_ms / relay.postgres_ms, 2),
        "pg_cpu_vs_textbook_20_lanes": round(textbook.postgres_ms / by_side[TWENTY_LANES.name].postgres_ms, 2),
        "deliveries_per_cpu_s_vs_bare": round(found.relay_vs_bare, 2),
        "pairs": len(found.vs_bare),
        "deliveries_per_cpu_s_vs_own_client": round(by_side["bare sender"].client_ms / relay.client_ms, 2),
        "vs_peers": {peer.name: round(by_side[peer.name].client_ms / relay.client_ms, 2) for peer in PEERS},
        "wal_bytes_per_job": round(relay.wal_bytes / relay.jobs),
        "statements_per_job": round(relay.statements / relay.jobs, 3),
        "buffers_per_job": round(relay.buffers / relay.jobs, 1),
        "dead_tuples_per_job": round(relay.dead / relay.jobs, 2),
        "duplicates": sum(each.duplicates for each in by_side.values()),
    }
