"""`relay ping`: one signed delivery with the relay's own sender and headers, and no job behind it."""

import json
import time
import uuid
from dataclasses import dataclass

from relay.admin import no_such_destination
from relay.config import Settings
from relay.errors import ConfigError
from relay.model import Answer, Delivered, ErrorClass, Job, Result
from relay.rules.classify import classify
from relay.rules.request import headers
from relay.sender import Sender

TOPIC = "relay.ping"


@dataclass(frozen=True, slots=True)
class Pinged:
    """What the receiver did. `status` is None where there was no answer; `error_class` and `detail` where it failed."""

    destination: str
    delivered: bool
    status: int | None
    duration_s: float
    error_class: str | None
    detail: str | None


async def ping(settings: Settings, name: str) -> Pinged:
    """Sends a test delivery to a configured destination, once, whether it is paused or not.

    Raises ConfigError when the destination is not configured, or a secret cannot be read.
    """
    destinations = {d.name: d for d in settings.resolved_destinations()}
    if name not in destinations:
        raise ConfigError(no_such_destination(name, destinations.keys()))
    destination = destinations[name]
    job = _job(name)
    async with Sender() as sender:
        now_epoch_s, started_s = time.time(), time.monotonic()
        result = await sender.send(destination, headers(job, destination, int(now_epoch_s)), job.body)
        duration_s = time.monotonic() - started_s
    outcome = classify(result, destination.permanent_statuses, now_epoch_s)
    failed = not isinstance(outcome, Delivered)
    return Pinged(
        destination=name,
        delivered=not failed,
        status=result.status if isinstance(result, Answer) else None,
        duration_s=duration_s,
        error_class=_error_class(result).value if failed else None,
        detail=outcome.detail if not isinstance(outcome, Delivered) else None,
    )


def _error_class(result: Result) -> ErrorClass:
    return ErrorClass.STATUS if isinstance(result, Answer) else result.error_class


def _job(destination: str) -> Job:
    body = json.dumps({"type": TOPIC, "destination": destination}).encode()
    return Job(
        id=0, destination=destination, topic=TOPIC, entity_key=None, idempotency_key=str(uuid.uuid4()),
        content_type="application/json", body=body, headers={}, attempts=1, claims=1,
    )  # fmt: skip
