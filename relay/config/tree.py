"""The settings tree: every key with its default, its bounds and its meaning, as frozen values.

The docstring under each key is its text in docs/configuration.md.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from relay import model
from relay.config import destination, tokens
from relay.config.group import Group
from relay.config.origin import Complaint, Origin
from relay.config.values import (
    YEAR_S,
    Dsn,
    Egress,
    File,
    HeaderValue,
    Name,
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
    """When the platform kills a stopping process; must match the pod's termination grace period."""
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


class Settings(BaseSettings):
    """The whole tree. It reads nothing by itself: `relay.config.load` does."""

    model_config = SettingsConfigDict(
        env_prefix="RELAY_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    database: Database
    replica: Replica = Field(default_factory=Replica)
    retention: Retention = Retention()
    registry: Registry = Registry()
    web: Web = Web()
    log: Log = Log()
    defaults: Defaults = Defaults()
    destinations: dict[Name, DestinationSettings] = Field(default={})
    _origin: Origin = PrivateAttr(default_factory=Origin)
    _broken: tuple[Complaint, ...] = PrivateAttr(default=())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keep pydantic away from the process's environment."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        stated = {key: value for key, value in data.items() if value is not None}
        if isinstance(destinations := stated.get("destinations"), dict):
            defaults = stated.get("defaults", {})
            stated["destinations"] = {name: _inherited(defaults, own) for name, own in destinations.items()}
        return {"database": {}} | stated

    def written_at(self, origin: Origin, broken: tuple[Complaint, ...] = ()) -> Self:
        """Return these settings, with errors that name the places in `origin`, and what is `broken` beside them."""
        self._origin, self._broken = origin, broken
        return self

    @property
    def origin(self) -> Origin:
        """Where each key is written."""
        return self._origin

    def files(self) -> frozenset[str]:
        """Return every file that these settings were read from or name: the configuration, secrets, certificates."""
        named = (
            value
            for tls in (self.defaults.tls, *(each.tls for each in self.destinations.values()))
            for key, value in tls
            if key.endswith("_file") and value
        )
        return frozenset({*named, *self._origin.mounted, *filter(None, [self._origin.file])})

    def resolved_destinations(self) -> tuple[model.Destination, ...]:
        """Return every destination as a plain value: defaults applied, secrets and headers read and checked.

        Raises ConfigError with one line for each secret, header or file that cannot be used; with
        `replica.skip_broken_destinations` it returns the others, unless there is none.
        """
        return self._resolved()[0]

    def destination_names(self) -> frozenset[str]:
        """Return the names of all that are configured, rightly or wrongly."""
        return frozenset(self.destinations) | {str(complaint.destination) for complaint in self._broken}

    def broken_destinations(self) -> dict[str, str]:
        """Return what is wrong with each destination that is skipped, a line a fault; raises as the above."""
        broken: dict[str, list[Complaint]] = {}
        for complaint in self._resolved()[1]:
            broken.setdefault(str(complaint.destination), []).append(complaint)
        return {name: str(self._origin.error(each)) for name, each in broken.items()}

    def without(self, complaints: Sequence[Complaint]) -> Self:
        """Return these settings without the destinations that `complaints` are about.

        Raises ConfigError unless that was asked for, and leaves a destination, and cures all of them.
        """
        names = {complaint.destination for complaint in complaints}
        left = {name: each for name, each in self.destinations.items() if name not in names}
        if complaints and (None in names or not left or not self.replica.skip_broken_destinations):
            raise self._origin.error([*self._broken, *complaints])
        return self.model_copy(update={"destinations": left}).written_at(self._origin, (*self._broken, *complaints))

    def _resolved(self) -> tuple[tuple[model.Destination, ...], tuple[Complaint, ...]]:
        complaints: list[Complaint] = []
        found = [destination.resolved(name, each, complaints) for name, each in self.destinations.items()]
        usable = self.without(complaints).destinations
        return tuple(each for each in found if each.name in usable), (*self._broken, *complaints)

    def resolved_tokens(self) -> dict[model.Role, str]:
        """Return the tokens of the dashboard and the API by role, those that are set.

        Raises ConfigError with one line for each that cannot be used.
        """
        complaints: list[Complaint] = []
        resolved = tokens.resolved(self.web, complaints)
        if complaints:
            raise self._origin.error(complaints)
        return resolved


def _inherited(defaults: object, own: object) -> object:
    """Return `own` with what it does not state taken from `defaults`, mapping by mapping."""
    if not isinstance(defaults, Mapping) or not isinstance(own, Mapping | None):
        return own
    stated = own or {}
    return {**defaults, **{key: _inherited(defaults.get(key), value) for key, value in stated.items()}}
