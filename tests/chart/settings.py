"""The relay's own settings as JSON Schema, for the chart's `config` and `destinations`.

The chart sets what is left out: the address of the web server, the grace period, and the destinations' place.
"""

import json
from collections.abc import Mapping
from typing import Any

from relay.config.tree import Settings
from tests.chart.helm import CHART

Schema = dict[str, Any]

SCHEMA = CHART / "values.schema.json"

_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"}
_KEY = {"type": "string", "pattern": "^[-._a-zA-Z0-9]{1,253}$"}
_KEY_OF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "key"],
    "properties": {"name": _NAME, "key": _KEY},
}
_TEXT: Schema = {"type": "string", "minLength": 1}
_FILE: Schema = {"anyOf": [_TEXT, {"$ref": "#/definitions/mounted"}]}
_TEXT_OR_REFERENCE: Schema = {"anyOf": [_TEXT, {"$ref": "#/definitions/reference"}]}
# What the tree calls by words of its own.
_KINDS: Mapping[str, Schema] = {
    "URL": {"type": "string", "pattern": "^https?://"},
    "{env: NAME} or {file: PATH}": {"$ref": "#/definitions/reference"},
    "text, {env: NAME} or {file: PATH}": _TEXT_OR_REFERENCE,
    "URL, {env: NAME} or {file: PATH}": _TEXT_OR_REFERENCE,
    "topic, `prefix.*` or `*`": _TEXT,
    "any, public, list of networks": {
        "anyOf": [{"enum": ["any", "public"]}, {"type": "array", "minItems": 1, "items": _TEXT}]
    },
}
_KEPT = {
    *("type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "pattern", "description", "uniqueItems"),
}
_ELSEWHERE = {("web", "host"), ("web", "port"), ("replica", "termination_grace_s"), ("destinations",)}


def definitions() -> Schema:
    """The chart's definitions of a reference, a destination and everything else in relay.yaml."""
    tree = Settings.model_json_schema()
    levels = tree["$defs"]
    mounted = _one_of(secretKeyRef=_KEY_OF, configMapKeyRef=_KEY_OF)
    return {
        "mounted": mounted,
        "reference": _one_of(env=_TEXT, file=_TEXT, secretKeyRef=_KEY_OF, configMapKeyRef=_KEY_OF),
        "destination": _level(levels["DestinationSettings"], levels, ("destinations", "*")),
        "config": {key: each for key, each in _level(tree, levels, ()).items() if key != "description"},
    }


def _one_of(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": properties,
    }


def _level(level: Schema, levels: Schema, path: tuple[str, ...]) -> Schema:
    properties = {
        key: _converted(each, levels, (*path, key))
        for key, each in level["properties"].items()
        if (*path, key) not in _ELSEWHERE
    }
    return {"type": "object", "additionalProperties": False, "properties": properties} | (
        {"required": ["url"]} if path[:1] == ("destinations",) and len(path) == 2 else {}
    )


def _converted(schema: Schema, levels: Schema, path: tuple[str, ...]) -> Schema:
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return _level(levels[name], levels, path)
    described = {"description": schema["description"].replace("\n", " ")} if "description" in schema else {}
    if path[-1].endswith("_file"):
        return _FILE | described
    if options := schema.get("anyOf"):
        return {"anyOf": [_converted(each, levels, path) for each in options]} | described
    if kind := _KINDS.get(schema["type"]):
        return kind | described
    kept = {key: each for key, each in schema.items() if key in _KEPT} | described
    if "items" in schema:
        kept["items"] = _converted(schema["items"], levels, path)
    if isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = _converted(schema["additionalProperties"], levels, path)
    return kept


def schema() -> str:
    """values.schema.json with the definitions as the relay has them now."""
    written = json.loads(SCHEMA.read_text()) | {"definitions": definitions()}
    return json.dumps(written, indent=2, ensure_ascii=False) + "\n"
