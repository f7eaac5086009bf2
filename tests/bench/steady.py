"""What a side does a second while more is due than it can send, and what it and PostgreSQL use for that."""

import signal
import time
from dataclasses import dataclass

import httpx

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.bench import cpu
from tests.bench.rig import receiver
from tests.bench.sides import Side, Stage

_SETTLES_S = 1.0
# No side here does more.
_MOST_PER_S = 8_000


@dataclass(frozen=True)
class Steady:
    """Deliveries a second to receivers that answer after `delay_s`, and how much of a core was used for them."""

    side: str
    in_flight: int
    delay_s: float
    per_s: float
    client_core: float
    postgres_core: float

    @property
    def of_ideal(self) -> float:
        """Of in flight ÷ the time of an answer."""
        return self.per_s * self.delay_s / self.in_flight

    @property
    def postgres_ms(self) -> float:
        """CPU time of PostgreSQL for each job."""
        return 1000 * self.postgres_core / self.per_s


def steady(nest: Nest, postgres: Postgres, side: Side, in_flight: int, delay_s: float, seconds: float) -> Steady:
    """Counts what arrives in so many seconds, a second after a backlog that lasts longer was let go."""
    stage = Stage(nest, postgres, side)
    most_per_s = in_flight / delay_s if delay_s else _MOST_PER_S
    with receiver(1000 * delay_s) as url, stage.running(url, in_flight) as process, stage.connect() as connection:
        process.send_signal(signal.SIGSTOP)
        stage.obey("insert", int(most_per_s * (_SETTLES_S + seconds + 1)), 500)
        connection.execute("ANALYZE")
        process.send_signal(signal.SIGCONT)
        time.sleep(_SETTLES_S)
        before, meter = _arrived(url), cpu.Meter(postgres, [process])
        time.sleep(seconds)
        arrived, spent = _arrived(url) - before, meter.spent()
        connection.execute(f"TRUNCATE {side.table}".encode())  # it is not to deliver the rest before it ends
    per_s, client_core, postgres_core = (each / spent.wall_s for each in (arrived, spent.client_s, spent.postgres_s))
    return Steady(side.name, in_flight, delay_s, per_s, client_core, postgres_core)


def _arrived(url: str) -> int:
    return int(httpx.get(url + "count", trust_env=False).json()["requests"])
