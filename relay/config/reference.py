"""The page docs/configuration.md, written from the settings tree."""

from collections.abc import Iterator, Mapping
from typing import Any

from relay.config.tree import Settings

_INTRODUCTION = """\
# Configuration

This page is generated from the settings tree; `make docs` writes it again.

The file is YAML 1.2: `--config PATH`, else `RELAY_CONFIG`, else `relay.yaml` in the working directory if there
is one. The environment overrides the file key by key, the file overrides the defaults below. A variable sets the
whole key that it names; lists and mappings are JSON in it; an empty variable counts as not set. Destinations are
set in the file only.

A secret is given by reference: `{env: NAME}` is an environment variable, `{file: PATH}` a file whose trailing
newline does not count. Relative paths start at the working directory. Secrets are never printed.

Unknown keys, repeated keys and unknown `RELAY_` variables are refused. `RELAY_` variables that the file refers
to, and those Kubernetes sets for a Service, are not unknown.

A running replica takes a changed file over, and the changed content of files that it names: all of it or none. Keys of
`database`, `replica` and `web` wait for the next start, as does the environment.

Keys that end in `_s` are seconds.
"""

_RULES = """\
## Rules between keys

- `deadline_s` + 5 < `replica.lease_s`, for `defaults` and every destination.
- `deadline_s` + 5 < `replica.drain_s`.
- `replica.drain_s` + 10 ≤ `replica.termination_grace_s`: what a replica that stops needs after the drain, to write the
  last outcomes and to close its connections.
- `retry.base_s` ≤ `retry.cap_s`.
- `signed: true` needs `secrets`; `signed: false` allows none.
- `http://` to a host that is not loopback needs `insecure_http: true`.
- `tls.client_key_file` needs `tls.client_certificate_file`.
- The headers `Authorization` and `Cookie` take a secret reference, not text.
"""

_KINDS = {"boolean": "`true`, `false`", "string": "text", "integer": "whole number"}

Schema = Mapping[str, Any]


def reference() -> str:
    """Return the page as Markdown."""
    schema = Settings.model_json_schema()
    levels = schema["$defs"]
    pages = [_INTRODUCTION]
    for group in schema["properties"]:
        if group == "destinations":
            inherited = levels["Defaults"]["properties"]
            level = levels["DestinationSettings"]
            own = {key: value for key, value in level["properties"].items() if key not in inherited}
            head = "A name is 1 to 63 of `a-z 0-9 _ -`, and begins with a letter or digit.\n\n"
            rows = _rows({**level, "properties": own}, levels, "", "")
            pages.append(f"## `destinations.NAME`\n\n{level['description']}\n{head}{_table(rows)}")
        else:
            level = levels[group.title()]
            rows = _rows(level, levels, f"RELAY_{group.upper()}_", "")
            pages.append(f"## `{group}`\n\n{level['description']}\n\n{_table(rows)}")
    return "\n".join([*pages, _RULES])


def _table(rows: Iterator[str]) -> str:
    head = "| key | takes | default | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _rows(level: Schema, levels: Mapping[str, Schema], variable: str, above: str) -> Iterator[str]:
    required = level.get("required", [])
    for key, schema in level["properties"].items():
        if name := schema.get("$ref", "").rpartition("/")[2]:
            yield f"| `{above}{key}` | mapping{_named(variable, key)} | | {levels[name]['description']} |"
            yield from _rows(levels[name], levels, "", f"{above}{key}.")
            continue
        default = "**required**" if key in required else _written(schema.get("default"), schema)
        meaning = schema["description"].replace("\n", " ")
        yield f"| `{above}{key}` | {_takes(schema)}{_named(variable, key)} | {default} | {meaning} |"


def _named(variable: str, key: str) -> str:
    return f"<br>`{variable}{key.upper()}`" if variable else ""


def _written(value: Any, schema: Schema) -> str:
    if value is None:
        return "the host's name" if "default" not in schema else ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:.10g}`"
    return f"`{value}`" if value not in ("", [], {}) else "none"


def _takes(schema: Schema) -> str:
    if options := schema.get("anyOf"):
        return " or ".join(_takes(option) for option in options if option.get("type") != "null")
    if words := schema.get("enum"):
        return ", ".join(f"`{word}`" for word in words)
    kind = str(schema["type"])
    if kind == "array":
        return f"list of {_takes(schema['items'])}"
    if kind == "object":
        return f"name: {_takes(schema['additionalProperties'])}"
    return _KINDS.get(kind, kind) + _bounds(schema)


def _bounds(schema: Schema) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "maximum": "≤"}
    return "".join(f" {sign} {schema[name]}" for name, sign in signs.items() if name in schema)
