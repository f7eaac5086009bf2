"""The configuration: `relay.yaml`, overridden by the environment, as one frozen tree.

Only this package reads the process's environment, but for OpenTelemetry's own variables.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from relay.config import document
from relay.config.contradictions import LEASE_MARGIN_S, contradictions
from relay.config.environment import FILE_VARIABLE, HALF, Environment, References, unknown, variable, variables
from relay.config.origin import Complaint, KeyPath, Origin
from relay.config.reference import reference
from relay.config.refusal import complaints_of
from relay.config.tree import Settings
from relay.errors import ConfigError

__all__ = ["Settings", "colour_unwanted", "load", "reference", "warnings"]

DEFAULT_FILE = Path("relay.yaml")
_SECRET_KEYS = {"dsn", "listen_dsn", "proxy", "admin_token", "viewer_token"}


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings in the file at `path`, overridden by `environ` (default: the process's own).

    Without `path` the file is RELAY_CONFIG, or `relay.yaml` where there is one. Raises ConfigError with a line
    for each fault. Secrets of destinations are read now; those that cannot be are refused by
    `Settings.resolved_destinations`, so that commands which send nothing do not need them.
    """
    environ = os.environ if environ is None else environ
    file = path or Path(environ.get(FILE_VARIABLE) or DEFAULT_FILE)
    stated = path is not None or bool(environ.get(FILE_VARIABLE))
    content, origin = document.read(file) if stated or file.exists() else ({}, Origin())
    environment, references = Environment(Settings, environ), References(environ)
    origin = Origin(origin.file, origin.lines, environment.overriding)
    raw = references.read(_overridden(content, environment, environ))
    origin = replace(origin, mounted=frozenset(references.files))
    if halves := list(_halves(raw)):
        raise origin.error(halves)
    if faults := list(unknown(environ, {FILE_VARIABLE, *variables(Settings), *references.names})):
        raise ConfigError("\n".join(faults))
    settings = _tree(raw, origin)
    return settings.without([*_unreadable(settings), *contradictions(settings)])


def _tree(raw: dict[str, Any], origin: Origin) -> Settings:
    try:
        return Settings(**raw).written_at(origin)
    except ValidationError as error:
        complaints = list(complaints_of(error, Settings))
    wrong = {complaint.destination for complaint in complaints}
    if None in wrong:
        raise origin.error(complaints)
    right = {name: each for name, each in raw["destinations"].items() if name not in wrong}
    return Settings(**{**raw, "destinations": right}).written_at(origin).without(complaints)


def colour_unwanted() -> bool:
    """Whether the user set NO_COLOR to anything (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def _overridden(content: Mapping[str, Any], environment: Environment, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return `content` with each variable's value in place of the whole key it names."""
    raw = dict(content)
    for group, values in environment().items():
        own = raw.get(group) or {}
        if isinstance(own, dict):  # else the tree refuses it
            secrets = {
                key: variable(environment.overriding[group, key], environ) for key in values.keys() & _SECRET_KEYS
            }
            raw[group] = {**own, **values, **secrets}
    return raw


def _halves(value: object, path: KeyPath = ()) -> Iterator[Complaint]:
    """Yield a complaint for each text that no wire can carry: an escape in YAML or JSON can be half a character."""
    match value:
        case str() if HALF.search(value):
            yield Complaint(path, "holds half a character (a lone surrogate); write it whole")
        case dict():
            for key, item in value.items():
                yield from _halves(key, (*path, key))
                yield from _halves(item, (*path, key))
        case list():
            for index, item in enumerate(value):
                yield from _halves(item, (*path, index))


def _unreadable(settings: Settings) -> Iterator[Complaint]:
    for key in ("dsn", "listen_dsn"):
        secret = getattr(settings.database, key)
        if secret is not None and secret.fault:
            yield Complaint(("database", key), secret.fault)


def warnings(settings: Settings) -> list[str]:
    """Return what is allowed but likely wrong, a sentence each."""
    if not settings.destinations:
        return [
            "destinations: none is configured, so nothing is delivered; is --config or RELAY_CONFIG the right file?"
        ]
    return [*_skipped(settings), *_short_lease(settings), *_no_server(settings)] + [
        f"destinations.{one} and destinations.{two} have common topics and the same origin: a receiver that "
        "remembers idempotency keys may refuse the second; give one of them a key_suffix"
        for (one, a), (two, b) in combinations(settings.destinations.items(), 2)
        if _origin_of(a.url) == _origin_of(b.url)
        and a.key_suffix == b.key_suffix
        and any(_covers(p, q) or _covers(q, p) for p in a.topics for q in b.topics)
    ]


def _skipped(settings: Settings) -> Iterator[str]:
    with contextlib.suppress(ConfigError):  # refused as a whole, which others say
        for sentences in settings.broken_destinations().values():
            for sentence in sentences.splitlines():
                yield f"{sentence}; replicas skip this destination, its jobs wait"


def _short_lease(settings: Settings) -> Iterator[str]:
    """A lease is renewed when a third of it is over; what waits for a slot then has two thirds left."""
    longest_s = max(each.deadline_s for each in settings.destinations.values())
    needed_s = 1.5 * (longest_s + LEASE_MARGIN_S)
    if settings.replica.lease_s < needed_s:
        yield (
            f"replica.lease_s, {settings.replica.lease_s:g} s, is tight for a deadline of {longest_s:g} s: jobs "
            f"that wait for a slot may be given back unsent and claimed again; {needed_s:g} s is comfortable"
        )


def _no_server(settings: Settings) -> Iterator[str]:
    if settings.web.port == 0 and (settings.web.admin_token or settings.web.viewer_token):
        yield "web.admin_token or web.viewer_token is set, but web.port is 0: there is no server to log in to"


def _origin_of(url: str) -> tuple[str, str | None, int]:
    """RFC 6454: scheme, host and port, the scheme's own port where none is written."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _covers(pattern: str, topic: str) -> bool:
    return pattern in ("*", topic) or (pattern.endswith(".*") and topic.startswith(pattern[:-1]))
