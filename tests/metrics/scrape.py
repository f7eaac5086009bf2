"""What a replica answers over HTTP, and its metrics as values."""

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass(frozen=True)
class Scrape:
    """One answer of `/metrics`, as text and by name and labels."""

    text: str
    series: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.series, f"{key} twice in one scrape"
                self.series[key] = sample.value

    @property
    def names(self) -> set[str]:
        """The names of all series."""
        return {name for name, _ in self.series}

    def value(self, name: str, **labels: str) -> float:
        """One value; raises KeyError where there is no such series."""
        return self.series[name, frozenset(labels.items())]


@dataclass(frozen=True)
class Web:
    """A replica's server."""

    port: int

    async def get(self, path: str) -> tuple[int, str]:
        """The status and the text of one answer."""
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    async def scrape(self) -> Scrape:
        """The metrics."""
        status, text = await self.get("/metrics")
        assert status == 200, text
        return Scrape(text)

    async def scraped(self, enough: Callable[[Scrape], bool], timeout_s: float = 30.0) -> Scrape:
        """The first scrape that satisfies `enough`. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not enough(scrape := await self.scrape()):
                await asyncio.sleep(0.05)
        return scrape

    async def answers(self, path: str, status: int, *, text: str = "", timeout_s: float = 30.0) -> str:
        """Waits until `path` is answered with `status` and a text that contains `text`; that text."""
        last = (0, "")
        try:
            async with asyncio.timeout(timeout_s):
                while last[0] != status or text not in last[1]:
                    await asyncio.sleep(0.02)
                    last = await self.get(path)
        except TimeoutError:
            raise AssertionError(f"{path} answered {last} and never {status} with {text!r}") from None
        return last[1]
