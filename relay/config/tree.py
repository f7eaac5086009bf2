"""The settings tree: what a destination inherits, and what is left where one of them is broken."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field, PrivateAttr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from relay import model
from relay.config import destination, tokens
from relay.config.keys import Database, Defaults, DestinationSettings, Log, Registry, Replica, Retention, Web
from relay.config.origin import Complaint, Origin
from relay.config.values import Name


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
