"""Reads the YAML file into plain values, with the line of every key, and refuses YAML's traps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from relay.config.origin import Complaint, KeyPath, Origin
from relay.errors import ConfigError

MAX_BYTES = 1 << 20
# Aliases are counted where they are used: a few lines of them can stand for billions of values.
MAX_NODES = 100_000
MAX_DEPTH = 20
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


def read(path: Path) -> tuple[dict[str, Any], Origin]:
    """Return the file's mapping, empty for an empty file, and where its keys are.

    Raises ConfigError when the file cannot be read, is not UTF-8, over 1 MiB, not YAML 1.2, or not a mapping,
    and for repeated keys, keys that are not text, and aliases that expand without bound. The text of values
    never gets into the error: the parser's own message would quote the line, with the secret in it.
    """
    file = str(path)
    text = _text(path)
    yaml = YAML(typ="safe", pure=True)
    yaml.version = "1.2"
    try:
        node = yaml.compose(text)
        if node is None:
            return {}, Origin(file)
        if not isinstance(node, MappingNode):
            raise ConfigError(f"{file}: the file must be a mapping of settings, such as `destinations:`")
        lines: dict[KeyPath, int] = {}
        complaints = list(_Walk(file, lines).faults(node, ()))
        origin = Origin(file, lines)
        if complaints:
            raise origin.error(complaints)
        return yaml.constructor.construct_document(node), origin
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        text = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{file}:{mark.line + 1 if mark else 1}: not YAML: {text}") from None
    except YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ConfigError(f"{file}: nested too deeply; {MAX_DEPTH} levels are allowed") from None
    except (ValueError, OverflowError):
        raise ConfigError(f"{file}: a number or date that cannot be read; quote it if it is text") from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{path}: over {MAX_BYTES} bytes; this is not a relay configuration")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


class _Walk:
    """One pass over the parsed nodes, aliases followed; fills `lines` as it goes."""

    def __init__(self, file: str, lines: dict[KeyPath, int]) -> None:
        self.file = file
        self.lines = lines
        self.nodes = 0

    def faults(self, node: Node, path: KeyPath) -> Iterator[Complaint]:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_DEPTH:
            limits = f"{MAX_NODES} values and {MAX_DEPTH} levels"
            raise ConfigError(f"{self.file}:{node.start_mark.line + 1}: aliases or nesting expand beyond {limits}")
        if isinstance(node, MappingNode):
            yield from self._mapping(node, path)
        elif isinstance(node, SequenceNode):
            for index, item in enumerate(node.value):
                self.lines.setdefault((*path, index), item.start_mark.line + 1)
                yield from self.faults(item, (*path, index))

    def _mapping(self, node: MappingNode, path: KeyPath) -> Iterator[Complaint]:
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE:
                for merged in value.value if isinstance(value, SequenceNode) else [value]:
                    yield from self.faults(merged, path)
                continue
            at: KeyPath = (*path, str(key.value) if isinstance(key, ScalarNode) else "?")
            first = self.lines.setdefault(at, line)
            if not isinstance(key, ScalarNode) or key.tag != _TEXT:
                yield Complaint(at, f'a key must be text: put it in quotes, as in "{at[-1]}"')
            elif key.value in seen:
                self.lines[at] = line
                yield Complaint(at, f"given again, first on line {first}; remove one of the two")
            else:
                seen.add(key.value)
                self.lines[at] = line
                yield from self.faults(value, at)
