"""The words of the relay as plain values. Nothing here does I/O, reads a clock or validates configuration."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

OnDead = Literal["block", "skip"]
Role = Literal["viewer", "admin"]
KeyForm = Literal["plain", "structured"]


class ErrorClass(enum.StrEnum):
    """Why an attempt failed, in words an operator can search for."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    EGRESS = "egress"
    WRITE = "write"
    READ = "read"
    PROTOCOL = "protocol"
    DEADLINE = "deadline"
    STATUS = "status"
    INTERNAL = "internal"
    LEASE_EXPIRED = "lease_expired"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed job is tried again; see `relay.rules.backoff`."""

    max_attempts: int = 12
    base_s: float = 5.0
    factor: float = 4.0
    cap_s: float = 21_600.0
    jitter: float = 0.25
    retry_after_cap_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Tls:
    """Verification of one destination's server; paths are files in PEM.

    `contents` are digests of what was in them, by key: a file that changed makes another value of this.
    """

    ca_file: str | None = None
    client_certificate_file: str | None = None
    client_key_file: str | None = None
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    contents: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Destination:
    """A webhook, ready for use: every default resolved, every secret read.

    `headers` are operator headers in the order they are sent, credentials included, so their
    values never appear in a `repr`. `egress` is `any`, `public`, or a tuple of CIDR networks.
    """

    name: str
    url: str = field(repr=False)
    topics: tuple[str, ...] = ()
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    deadline_s: float = 15.0
    connect_timeout_s: float = 5.0
    max_in_flight: int = 64
    rate_per_s: float | None = None
    retry: RetryPolicy = RetryPolicy()
    permanent_statuses: frozenset[int] = frozenset()
    on_dead: OnDead = "block"
    key_form: KeyForm = "plain"
    key_suffix: str = ""
    egress: str | tuple[str, ...] = "any"
    tls: Tls = Tls()
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Job:
    """One claimed row of `outbox.job`. (`locked_by`, `claims`) is its fencing token; the store knows `locked_by`.

    `attempts` counts this attempt already. `chained` is how many times in a row its lane was continued
    without going back to the queue. `due_s` is when it was due first, on this process's monotonic clock: the age that
    the database saw when it was claimed, counted back from the moment before the claim was sent.
    """

    id: int
    destination: str
    topic: str
    entity_key: str | None
    idempotency_key: str
    content_type: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    attempts: int
    claims: int
    max_attempts: int | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    redrive: bool = False
    chained: int = 0
    due_s: float = field(default=0.0, compare=False)

    @property
    def is_retry(self) -> bool:
        """Whether it was tried before; a job that was given back unsent, or redriven, was not."""
        return self.attempts > 1


class Room(NamedTuple):
    """How many jobs of a destination may be claimed, and how many of them may be retries."""

    jobs: int
    retries: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A receiver's answer. `headers` have lower-case names; `body` holds only the first bytes (4 KiB)."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """No usable answer: which kind, and one line of detail without secrets."""

    error_class: ErrorClass
    detail: str


Result = Answer | Fault


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver accepted the job (2xx)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed and may be repeated, no sooner than `hint_s` from now where the receiver said so."""

    error_class: ErrorClass
    detail: str
    hint_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The receiver answered with a status that this destination lists as permanent."""

    error_class: ErrorClass
    detail: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The receiver answered 410: the destination is paused and the job waits without being charged."""

    detail: str


Outcome = Delivered | Failed | Refused | Gone


@dataclass(frozen=True, slots=True)
class Failure:
    """What `outbox.attempt` keeps of a failed attempt. `trace_id` is 32 hex digits, of the attempt's span."""

    error_class: ErrorClass
    detail: str
    duration_s: float
    status: int | None = None
    response: bytes = field(default=b"", repr=False)
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to be written about one attempt.

    `pending` sets the due time `delay_s` seconds after the database's now(). `charged` false gives the
    attempt back. `holds_lane` matters for `dead` only: the lane stands still behind it. `pauses` pauses
    the destination durably. `chain` lets the lane's next job start at once on this replica.
    `duration_s` is the attempt's, None where there was none.
    """

    job: Job
    status: Literal["done", "pending", "dead"]
    delay_s: float = 0.0
    charged: bool = True
    holds_lane: bool = False
    pauses: bool = False
    chain: bool = False
    failure: Failure | None = None
    duration_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """One attempt that ended: what to write, and what it tells about the destination as a whole.

    `hold_s` is for how long the receiver asks to be left alone, from now.
    """

    settlement: Settlement
    signal: Literal["success", "failure", "neutral"]
    hold_s: float | None = None
