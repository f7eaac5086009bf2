"""What a configuration that is read again changes, and which of it a running replica cannot take over."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from relay import model
from relay.config.contradictions import contradictions
from relay.config.origin import KeyPath, dotted
from relay.config.tree import Settings

# What was built from these groups at the start stays as it is.
NEED_RESTART = ("database", "replica", "web")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings, and the destinations that they resolve to."""

    settings: Settings
    destinations: tuple[model.Destination, ...]


def difference(old: Configuration, new: Configuration) -> list[str]:
    """Return the paths of all keys whose values differ, never a value.

    A destination that comes or goes is one path; what destinations inherit is named once, in `defaults`.
    """
    before, after = dict(_keys(old)), dict(_keys(new))
    names = {each.name for each in old.destinations} ^ {each.name for each in new.destinations}
    paths: set[KeyPath] = {("destinations", name) for name in names}
    for path in {*before, *after}:
        if path[:2] not in paths and before.get(path) != after.get(path):
            paths.add(_written(path, old.settings, new.settings))
    return sorted(map(dotted, paths))


def needs_restart(running: Settings, wanted: Settings) -> list[str]:
    """Return the paths of the keys that take effect at the next start only."""
    old, new = (Configuration(each, ()) for each in (running, wanted))
    return [path for path in difference(old, new) if path.split(".", 1)[0] in NEED_RESTART]


def live(wanted: Settings, running: Settings) -> Settings:
    """Return `wanted` with what needs a restart as it is in `running`; raises ConfigError where these contradict."""
    kept = {group: getattr(running, group) for group in NEED_RESTART}
    settings = wanted.model_copy(update=kept)
    return settings.without(list(contradictions(settings)))


def _written(path: KeyPath, *settings: Settings) -> KeyPath:
    places = [each.origin.written(path) for each in settings]
    return path if path in places else places[-1]


def _keys(configuration: Configuration) -> Iterator[tuple[KeyPath, object]]:
    yield from _flat(configuration.settings.model_dump(exclude={"destinations"}), ())
    for destination in configuration.destinations:
        keys = {**asdict(destination), "headers": dict(destination.headers)}
        files = dict(keys["tls"].pop("contents"))
        # A certificate that was replaced in its place is a change of the key that names the file.
        keys["tls"] = {key: (value, files.get(key)) for key, value in keys["tls"].items()}
        yield from _flat(keys, ("destinations", destination.name))


def _flat(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if not isinstance(value, Mapping):
        yield path, value
        return
    for key, item in value.items():
        yield from _flat(item, (*path, key))
