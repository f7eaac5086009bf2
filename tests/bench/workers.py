"""The textbook queue by its number of workers, with PostgreSQL held to one core, and the relay with as many in flight.

As in the published experiments with SKIP LOCKED: work of 100 ms and of 0 ms, here a receiver that takes so long, and
one pool of twenty connections for all workers, on a table of the textbook's own.
"""

from collections.abc import Iterable, Iterator

from relay.demo.nest import Nest
from tests.bench.sides import LEAN_TEXTBOOK, RELAY, watched
from tests.bench.steady import Steady, steady

WORKERS = (1, 8, 32, 128)
DELAYS_S = (0.1, 0.0)


def workers(seconds: float) -> Iterator[Steady]:
    """Each number and each delay, for both. A server of its own for each, or the garbage of one would be the next's."""
    for delay_s in DELAYS_S:
        for side in (LEAN_TEXTBOOK, RELAY):
            for number in WORKERS:
                with Nest() as nest, watched(nest, core=0) as postgres:
                    yield steady(nest, postgres, side, number, delay_s, seconds)


def table(found: Iterable[Steady]) -> None:
    """Prints deliveries a second, of what they could be, and what was used, as soon as each is known."""
    print(f"\nby loops, or in flight, PostgreSQL on one core:\n{'':24}{'answers':>9}{'loops':>9}{'jobs/s':>8}"
          f"{'of ideal':>10}{'its core':>10}{'PG core':>9}{'PG ms':>8}")  # fmt: skip
    for each in found:
        ideal = f"{each.of_ideal:10.2f}" if each.delay_s else f"{'–':>10}"
        print(f"{each.side:24}{1000 * each.delay_s:6.0f} ms{each.in_flight:9}{each.per_s:8.0f}{ideal}"
              f"{each.client_core:10.2f}{each.postgres_core:9.2f}{each.postgres_ms:8.3f}", flush=True)  # fmt: skip
