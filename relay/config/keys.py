"""Every key of the settings with its default, its bounds and its meaning, as frozen values.

The docstring under each key is its text in docs/configuration.md.
"""

import socket
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from relay.config.group import Group
from relay.config.values import (
    YEAR_S,
    Dsn,
    Egress,
    File,
    HeaderValue,
    Number,
    Proxy,
    Reference,
    Seconds,
    Status,
    Suffix,
    Topic,
    Url,
    matching,
)


class Database(Group):
    """The PostgreSQL database that holds the `outbox` schema."""

    dsn: Dsn
    """Connection string, as libpq reads it. A password comes by reference or from the environment only."""
    listen_dsn: Dsn | None = None
    """Connection string for LISTEN where `dsn` leads to a pooler in transaction mode. Empty: `dsn`."""
    pool_size: Annotated[int, Field(ge=2, le=100), Number] = 4
    """Connections of one replica, besides the one that listens."""
    prepared_statements: bool = True
    """Switch off behind a pooler that cannot keep prepared statements."""
    connect_timeout_s: Seconds = 5.0
    """How long opening one connection may take."""
    statement_timeout_s: Seconds = 30.0
    """How long one of the relay's statements may run."""


class Replica(Group):
    """One relay process."""

    name: Annotated[str, matching(r"[!-~]{1,200}", "up to 200 visible ASCII characters")] = Field(
        default_factory=socket.gethostname
    )
    """Its name in leases, logs and metrics. Not set: the host's name."""
    lease_s: Seconds = 60.0
    """How long a claim holds without renewal; more than any destination's `deadline_s` + 5 s."""
    poll_s: Seconds = 1.0
    """Longest wait before the database is asked for due jobs, where no notification arrives."""
    notify: bool = True
    """Whether inserts wake idle replicas by NOTIFY (which forbids PREPARE TRANSACTION)."""
    drain_s: Seconds = 25.0
    """How long a stopping replica finishes what is in flight before it releases the rest."""
    termination_grace_s: Seconds = 40.0
    """When the platform kills a stopping process: `drain_s` + 10 s or more; must match the pod's
    termination grace period."""
    skip_broken_destinations: bool = False
    """Whether a replica starts without destinations that are configured wrongly; their jobs wait. Else it refuses."""
    payload_budget_bytes: Annotated[int, Field(ge=1_048_576, le=1 << 40), Number] = 256 * 1_048_576
    """Most payload bytes in flight at once; at least one payload of the largest size, 1 MiB."""


class Retention(Group):
    """How long finished work is kept, and how gently it is deleted."""

    done_s: Annotated[float, Field(ge=0, le=YEAR_S, allow_inf_nan=False), Number] = 86_400.0
    """Age at which done and discarded jobs are deleted. 500 jobs/s for a day are 43 million rows. 0 deletes a job as
    it is delivered: it cannot be looked at or sent again, and the database writes less."""
    dead_s: Seconds | None = None
    """Age at which dead letters are deleted, unseen; their entities go on. Empty: never, a person decides."""
    attempt_s: Seconds = 7 * 86_400.0
    """Age at which records of failed attempts are deleted."""
    batch: Annotated[int, Field(ge=1, le=100_000), Number] = 1_000
    """Most rows deleted by one statement."""
    sweep_s: Seconds = 5.0
    """Pause between two rounds of the sweeper: expired leases, retention, gauges."""


class Registry(Group):
    """What `relay sync` writes to the database."""

    generation: Annotated[int, Field(ge=0, le=2**63 - 1), Number] = 0
    """Raise it with every rollout: a lower generation never overwrites a higher one."""


class Web(Group):
    """The replica's own HTTP server: health, metrics, and with a token the dashboard and API below /admin."""

    host: str = Field(default="127.0.0.1", min_length=1, max_length=255)
    """Where it listens. Only this machine unless said otherwise; in Kubernetes set `0.0.0.0` or `::`."""
    port: Annotated[int, Field(ge=0, le=65_535), Number] = 0
    """Its port; 0 is no server, so that two replicas on one machine do not fight over one."""
    admin_token: Reference | None = None
    """Opens the dashboard and the API to whoever may change things. At least 20 characters. Empty: nobody may."""
    viewer_token: Reference | None = None
    """Opens them to whoever may look, payloads included. Empty: only `admin_token` does."""


class Log(Group):
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is written."""
    format: Literal["auto", "json", "text"] = "auto"
    """`auto` is text on a terminal, else one JSON object a line."""


class Retry(Group):
    """When a failed job is tried again: base_s × factor^(n-1), at most cap_s, plus up to `jitter` of it."""

    max_attempts: Annotated[int, Field(ge=1, le=1_000), Number] = 12
    """Attempts before a job is a dead letter; a job's own `max_attempts` wins."""
    base_s: Seconds = 5.0
    """Delay after the first failure."""
    factor: Annotated[float, Field(ge=1, le=100), Number] = 4.0
    """Growth from one delay to the next."""
    cap_s: Seconds = 21_600.0
    """Longest delay before jitter; not below `base_s`."""
    jitter: Annotated[float, Field(ge=0, le=1), Number] = 0.25
    """Largest share of the delay added at random, never subtracted."""
    retry_after_cap_s: Seconds = 86_400.0
    """Longest wait that a receiver's Retry-After can ask for."""


class Tls(Group):
    """Verification of the receiver's certificate, and our own; files in PEM."""

    ca_file: File | None = None
    """Authorities to trust in place of the system's."""
    client_certificate_file: File | None = None
    """Certificate that the relay presents."""
    client_key_file: File | None = None
    """Its private key, where that is a file of its own."""
    minimum_version: Annotated[Literal["1.2", "1.3"], BeforeValidator(str)] = "1.2"
    """Oldest TLS version accepted."""


class Defaults(Group):
    """What every destination inherits, key by key; `retry`, `tls` and `headers` are merged."""

    deadline_s: Seconds = 15.0
    """Limit on one attempt as a whole: DNS, connect, TLS, write, answer."""
    connect_timeout_s: Seconds = 5.0
    """Limit on DNS, connect and TLS, within `deadline_s`."""
    max_in_flight: Annotated[int, Field(ge=1, le=10_000), Number] = 64
    """Most requests at once, per destination and replica."""
    rate_per_s: Annotated[float, Field(gt=0, le=1_000_000), Number] | None = None
    """Most requests a second, per destination and replica. Empty: no limit."""
    retry: Retry = Retry()
    tls: Tls = Tls()
    permanent_statuses: frozenset[Status] = frozenset()
    """Answers that make a job a dead letter at once."""
    on_dead: Literal["block", "skip"] = "block"
    """Whether a dead letter holds back the later jobs of its entity, or is skipped."""
    headers: dict[str, HeaderValue] = Field(default={}, repr=False)
    """Headers added to every request. Credentials come by reference."""
    proxy: Proxy = Field(default=None, repr=False)
    """HTTP proxy; the environment's proxy variables are not read."""
    egress: Egress = "any"
    """Addresses that may be connected to. Link-local and metadata addresses never are."""
    key_form: Literal["plain", "structured"] = "plain"
    """How Idempotency-Key is written: as it is, or quoted as the IETF draft wants."""
    signed: bool = True
    """Whether requests carry a Standard Webhooks signature."""


class DestinationSettings(Defaults):
    """A webhook. It takes every key of `defaults` too."""

    url: Url = Field(repr=False)
    """Where to POST: https, without user, password or fragment."""
    topics: tuple[Topic, ...] = ()
    """Events it gets: a topic, `prefix.*`, or `*`. Without any it gets only jobs that name it."""
    secrets: tuple[Reference, ...] = ()
    """Signing secrets (`whsec_…`); several while one replaces another. Required unless `signed` is false."""
    key_suffix: Suffix = ""
    """Added to idempotency keys, after a `-`, for two destinations whose receiver shares a store of keys."""
    insecure_http: bool = False
    """Allows http:// to a host that is not loopback: the payload travels readable."""
