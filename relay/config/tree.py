"""The settings tree: every key with its default, its bounds and its meaning, as frozen values.

The docstring under each key is its text in docs/configuration.md.
"""

import socket
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from relay import model
from relay.config.destination import Defaults, DestinationSettings, inherited
from relay.config.group import Group
from relay.config.origin import Complaint, KeyPath, Origin
from relay.config.values import YEAR_S, Dsn, Name, Number, Seconds, matching


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
    payload_budget_bytes: Annotated[int, Field(ge=1_048_576, le=1 << 40), Number] = 256 * 1_048_576
    """Most payload bytes in flight at once; at least one payload of the largest size, 1 MiB."""


class Retention(Group):
    """How long finished work is kept, and how gently it is deleted."""

    done_s: Annotated[float, Field(ge=0, le=YEAR_S, allow_inf_nan=False), Number] = 86_400.0
    """Age at which done and discarded jobs are deleted. 500 jobs/s for a day are 43 million rows."""
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


class Log(Group):
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is written."""
    format: Literal["auto", "json", "text"] = "auto"
    """`auto` is text on a terminal, else one JSON object a line."""


# A lease must outlast the longest attempt and its bookkeeping; a drain must fit one attempt and its settle.
LEASE_MARGIN_S = 5
SETTLE_MARGIN_S = 5


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
    log: Log = Log()
    defaults: Defaults = Defaults()
    destinations: dict[Name, DestinationSettings] = Field(default={})
    _origin: Origin = PrivateAttr(default_factory=Origin)

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
            stated["destinations"] = {name: inherited(defaults, own) for name, own in destinations.items()}
        return {"database": {}} | stated

    def written_at(self, origin: Origin) -> Self:
        """Return these settings, with errors that name the places in `origin`."""
        self._origin = origin
        return self

    def complaints(self) -> Iterator[Complaint]:
        """Yield what is wrong between keys."""
        replica = self.replica
        for path, each in self._webhooks():
            yield from each.complaints(path)
            deadline: KeyPath = (*path, "deadline_s")
            for key, limit_s, margin_s in (
                ("lease_s", replica.lease_s, LEASE_MARGIN_S),
                ("drain_s", replica.drain_s, SETTLE_MARGIN_S),
            ):
                if each.deadline_s + margin_s >= limit_s:
                    text = f"{each.deadline_s:g} s + {margin_s} s must be less than {{other}}, {limit_s:g} s"
                    yield Complaint(deadline, text, ("replica", key))
        if replica.drain_s >= replica.termination_grace_s:
            text = f"{replica.drain_s:g} s must be less than {{other}}, {replica.termination_grace_s:g} s"
            yield Complaint(("replica", "drain_s"), text, ("replica", "termination_grace_s"))

    def _webhooks(self) -> Iterator[tuple[KeyPath, Defaults]]:
        yield ("defaults",), self.defaults
        for name, destination in self.destinations.items():
            yield ("destinations", name), destination

    def resolved_destinations(self) -> tuple[model.Destination, ...]:
        """Return every destination as a plain value: defaults applied, secrets and headers read and checked.

        Raises ConfigError with one line for each secret, header or file that cannot be used.
        """
        complaints: list[Complaint] = []
        resolved = tuple(each.resolved(name, complaints) for name, each in self.destinations.items())
        if complaints:
            raise self._origin.error(complaints)
        return resolved
