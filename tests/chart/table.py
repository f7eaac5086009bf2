"""The chart's values with their comments, as a table for its README."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.chart.helm import CHART

_TABLE = re.compile(r"(<!-- values -->\n).*?(<!-- end of values -->)", re.DOTALL)


def documented() -> dict[str, str]:
    """The text of every value in values.yaml that has one, by its path."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    text = None
    for line in (CHART / "values.yaml").read_text().splitlines():
        if comment := re.fullmatch(r" *# -- (.*)", line):
            text = comment[1]
        elif key := re.match(r"( *)([A-Za-z]\w*):", line):
            above = [each for each in above if each[0] < len(key[1])] + [(len(key[1]), key[2])]
            if text is not None:
                found[".".join(name for _, name in above)] = text
            text = None
    return found


def undocumented() -> list[str]:
    """The paths of values that have no text, and none above or below them."""
    return [path for path in _leaves(yaml.safe_load((CHART / "values.yaml").read_text()), "") if not _told(path)]


def _told(path: str) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:end]) in documented() for end in range(1, len(parts) + 1))


def _leaves(values: object, path: str) -> Iterator[str]:
    if isinstance(values, Mapping) and values:
        for key, each in values.items():
            yield from _leaves(each, f"{path}.{key}".lstrip("."))
    else:
        yield path


def readme() -> str:
    """README.md with the table as values.yaml has it now."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = "".join(f"| `{path}` | {_written(_at(defaults, path))} | {text} |\n" for path, text in documented().items())
    table = f"| value | default | meaning |\n|---|---|---|\n{rows}"
    return _TABLE.sub(lambda found: found[1] + table + found[2], (CHART / "README.md").read_text())


def _at(values: Any, path: str) -> object:
    for key in path.split("."):
        values = values[key]
    return values


def _written(value: object) -> str:
    if value in ("", None, [], {}):
        return ""
    text = json.dumps(value) if isinstance(value, dict | list | bool) else str(value)
    return f"`{text}`" if len(text) <= 60 else "see values.yaml"
