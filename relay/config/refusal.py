"""Turns what pydantic refuses into sentences: the value, what is allowed, and the nearest right name."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from relay.config.origin import Complaint, KeyPath, dotted

# Values under these keys are never shown, whatever is wrong with them.
_SECRET_KEYS = {"dsn", "listen_dsn", "url", "secrets", "headers", "proxy", "admin_token", "viewer_token"}
_KINDS = {"dict_type": "a mapping", "model_type": "a mapping", "tuple_type": "a list", "frozen_set_type": "a list"}


def complaints_of(error: ValidationError, tree: type[BaseModel]) -> Iterator[Complaint]:
    """Yield a complaint for each fault that `tree` found."""
    for fault in error.errors(include_url=False):
        # pydantic marks a fault of a mapping's key, not of its value, like this.
        path = tuple(part for part in fault["loc"] if part != "[key]")
        yield Complaint(path, _sentence(path, fault, tree))


def _sentence(path: KeyPath, fault: Mapping[str, Any], tree: type[BaseModel]) -> str:
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(path, tree)
    if kind == "missing":
        if path == ("database", "dsn"):
            return "not set: set RELAY_DATABASE_DSN, or this key to text, {env: NAME} or {file: PATH}"
        return "not set, and there is no default"
    if kind == "value_error":
        text = str(context["error"])
        return f"{_shown(value)}: {text}" if _showable(path, value) else text
    if kind in _KINDS:
        example = f"; write [{value}]" if _KINDS[kind] == "a list" and _showable(path, value) else ""
        return f"is {_kind_of(value)}; must be {_KINDS[kind]}{example}"
    message = fault["msg"].replace("Input should", "must").replace("String should", "must")
    if kind == "string_type" and isinstance(value, int | float):
        message = f"{message}; quote it"
    return f"{_shown(value)}: {message}" if _showable(path, value) else message


def _unknown(path: KeyPath, tree: type[BaseModel]) -> str:
    names = _keys_at(path[:-1], tree)
    if near := difflib.get_close_matches(str(path[-1]), names, 1):
        return f"unknown key; did you mean {near[0]}?"
    elsewhere = [dotted((group, str(path[-1]))) for group in tree.model_fields if path[-1] in _keys_at((group,), tree)]
    if elsewhere:
        return f"unknown key here; did you mean {elsewhere[0]}?"
    return f"unknown key; the keys here are {', '.join(names)}"


def _keys_at(path: Sequence[str | int], tree: type[BaseModel]) -> list[str]:
    """Return the keys that the level of `tree` at `path` has; none where it is no level."""
    level: Any = tree
    for part in path:
        if isinstance(level, type) and issubclass(level, BaseModel):
            level = level.model_fields[str(part)].annotation
        else:
            level = get_args(level)[-1]
    return list(level.model_fields) if isinstance(level, type) and issubclass(level, BaseModel) else []


def _showable(path: KeyPath, value: object) -> bool:
    if not _SECRET_KEYS.isdisjoint(path) or not isinstance(value, str | int | float):
        return False
    text = str(value)
    # A key, a secret or a URL in the wrong place is still a secret.
    return len(text) <= 80 and text.isprintable() and "whsec_" not in text and "://" not in text


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "empty"
        case str():
            return "text"
        case bool() | int() | float():
            return "a number or boolean"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
    return "a value of another kind"
