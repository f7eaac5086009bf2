"""Health as Kubernetes asks for it: `/startupz`, `/readyz` and `/livez`. Each says why not, a sentence a line.

A receiver that is down makes none of them fail: that is what backoff, breakers and dead letters are for.
"""

import time
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from relay.replica import Replica

# It reads files: that it gets on says nothing about the database.
_WITHOUT_DATABASE = "reload"


class Health:
    """What is wrong with a replica; nothing when the list is empty.

    `stall_s` is how long a step of a loop may take at worst: longer than its statements and a connection may.
    """

    def __init__(self, replica: Replica, *, stall_s: float) -> None:
        self._replica = replica
        self._stall_s = stall_s

    def starting(self) -> list[str]:
        """Until it claims: the database has answered, and its schema is right. Once over, it is over."""
        return [] if self._replica.started else ["starting: waits for the database"]

    def unready(self) -> list[str]:
        """While it cannot do its work: starting, stopping, without database or schema, or with a loop that stalls."""
        found = self.starting()
        if self._replica.stopping:
            found.append("stopping: finishes what is in flight")
        schema = self._replica.sampler.schema
        if schema is not None and not schema.usable:
            found.append(schema.sentence)
        loops = self._replica.loops.values()
        if away := [each.name for each in loops if each.away]:
            found.append(f"the database is away, as {', '.join(away)} found")
        found += [
            f"loop {each.name} has made no progress for {each.behind_s:.0f} s"
            for each in loops
            if self._replica.started and each.behind_s > self._stall_s
        ]
        return found

    def dead(self) -> list[str]:
        """When only a new process helps: a loop does not come back, although the database answers the others.

        Where they all wait, the database does not answer. A restart would change nothing, and forget outcomes that
        are not written yet.
        """
        loops = self._replica.loops.values()
        since_s = time.monotonic() - self._stall_s
        answers = any(each.succeeded_s > since_s for each in loops if each.name != _WITHOUT_DATABASE)
        return [
            f"loop {each.name} has been stuck for {each.stuck_s:.0f} s"
            for each in loops
            if self._replica.started and answers and each.stuck_s > 2 * self._stall_s
        ]


def routes(health: Health) -> Sequence[Route]:
    """The three of them: 200, or 503 and why."""
    return [
        Route("/startupz", _answering(health.starting)),
        Route("/readyz", _answering(health.unready)),
        Route("/livez", _answering(health.dead)),
    ]


def _answering(wrong: Callable[[], list[str]]) -> Callable[[Request], object]:
    async def answer(_request: Request) -> PlainTextResponse:
        sentences = wrong()
        return PlainTextResponse("\n".join(sentences or ["ok"]) + "\n", status_code=503 if sentences else 200)

    return answer
