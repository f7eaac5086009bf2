"""The road to one address and port, on which packets can be lost, refused or slowed down.

Packets are dropped where they arrive, as if the wire had lost them: dropped where they leave, the sender would know.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from tests.faults.namespace import run

Way = Literal["there", "back"]
BOTH: tuple[Way, ...] = ("there", "back")


@dataclass(frozen=True)
class Wire:
    """TCP to `port` on `address`, in this process's network namespace. A fault lasts as long as its context."""

    address: str
    port: int

    @contextmanager
    def drops(self, share: float = 1.0, ways: tuple[Way, ...] = BOTH) -> Iterator[None]:
        """Loses this share of the packets, at random."""
        chance = () if share >= 1 else ("-m", "statistic", "--mode", "random", "--probability", str(share))
        with self._rules(ways, *chance, "-j", "DROP"):
            yield

    @contextmanager
    def resets(self) -> Iterator[None]:
        """Answers every packet to the address with RST, as a firewall that has forgotten the connection.

        The other end hears nothing of it.
        """
        with self._rules(("there",), "-j", "REJECT", "--reject-with", "tcp-reset"):
            yield

    @contextmanager
    def slow(self, rate: str) -> Iterator[None]:
        """Lets through no more than `rate`, as tc writes it, with up to 400 ms in the queue; all of this namespace."""
        bucket = ("tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
        run("tc", "qdisc", "add", "dev", "lo", "root", *bucket)
        try:
            yield
        finally:
            run("tc", "qdisc", "del", "dev", "lo", "root")

    @contextmanager
    def _rules(self, ways: tuple[Way, ...], *target: str) -> Iterator[None]:
        port = str(self.port)
        match = {
            "there": ("-d", self.address, "-p", "tcp", "--dport", port),
            "back": ("-s", self.address, "-p", "tcp", "--sport", port),
        }
        rules = [(*match[way], *target) for way in ways]
        for rule in rules:
            run("iptables", "-w", "-A", "INPUT", *rule)
        try:
            yield
        finally:
            for rule in rules:
                run("iptables", "-w", "-D", "INPUT", *rule)
