"""The demo's receiver, a process of its own: verifies, sometimes fails, and writes down every request.

Run as `python -m relay.demo.receiver RECORD`. The first line of the file RECORD is the port, every other
line is one `Arrival`, in JSON. The monotonic clock is the machine's: its times compare with the producer's.
"""

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from relay.demo.report import SUBSCRIPTIONS, Arrival

FAILING_SHARE = 0.03
SLOW_SHARE = 0.005
POISONED_DESTINATION = "billing"


def secret_variable(destination: str) -> str:
    """The environment variable with the signing secret of a destination."""
    return f"DEMO_SECRET_{destination.upper()}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a request is answered, and after how many seconds."""

    status: int
    after_s: float


def decide(destination: str, payload: dict[str, object], attempt: int, rng: random.Random) -> Verdict:
    """Refuse the poisoned job always, some others the first time, and answer a few slowly."""
    after_s = rng.uniform(0.3, 1.0) if rng.random() < SLOW_SHARE else rng.uniform(0.001, 0.020)
    if payload.get("poison") and destination == POISONED_DESTINATION:
        return Verdict(422, after_s)
    if attempt == 1 and rng.random() < FAILING_SHARE:
        return Verdict(rng.choice((500, 502, 503)), after_s)
    return Verdict(204, after_s)


class Receiver:
    """Answers POST /<destination> and appends what it saw to `record`."""

    def __init__(self, record: TextIO, rng: random.Random) -> None:
        self._record = record
        self._rng = rng
        self._verifiers = {name: Webhook(os.environ[secret_variable(name)]) for name in SUBSCRIPTIONS}

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one delivery; a signature that does not verify gets 401."""
        started = time.monotonic()
        destination = request.match_info["destination"]
        body = await request.read()
        verified = self._verifies(destination, body, request)
        verdict = Verdict(401, 0.0)
        if verified:
            attempt = int(request.headers.get("Relay-Attempt", "1"))
            verdict = decide(destination, json.loads(body), attempt, self._rng)
        try:
            await asyncio.sleep(verdict.after_s)
        except asyncio.CancelledError:
            # The relay hung up, or was killed: it never learns the verdict.
            self._write_down(request, started, verified=verified, accepted=False)
            raise
        self._write_down(request, started, verified=verified, accepted=verdict.status == 204)
        return web.Response(status=verdict.status)

    def _write_down(self, request: web.Request, started: float, *, verified: bool, accepted: bool) -> None:
        arrival = Arrival(
            destination=request.match_info["destination"],
            entity=unquote(request.headers.get("Relay-Entity-Key", "")),
            sequence=int(request.headers.get("Relay-Sequence", "0")),
            key=request.headers.get("Idempotency-Key", ""),
            started_s=started,
            ended_s=time.monotonic(),
            accepted=accepted,
            verified=verified,
        )
        self._record.write(json.dumps(asdict(arrival)) + "\n")

    def _verifies(self, destination: str, body: bytes, request: web.Request) -> bool:
        try:
            self._verifiers[destination].verify(body, dict(request.headers))
        except (WebhookVerificationError, KeyError):
            return False
        return True


async def serve(record: TextIO) -> None:
    """Listen on 127.0.0.1 until the process is ended."""
    receiver = Receiver(record, random.Random())
    application = web.Application()
    application.router.add_post("/{destination}", receiver.handle)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    record.write(f"{runner.addresses[0][1]}\n")
    await asyncio.Event().wait()


if __name__ == "__main__":
    # Line by line: what was answered is on record even when this process is killed.
    with Path(sys.argv[1]).open("w", buffering=1) as record:
        asyncio.run(serve(record))
