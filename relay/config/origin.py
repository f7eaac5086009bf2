"""Where each key is written, and one line for each fault that names the place."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from relay.errors import ConfigError
from relay.rules.escape import escaped

KeyPath = tuple[str | int, ...]

# What a destination does not inherit.
OWN_KEYS = {("url",), ("topics",), ("secrets",), ("key_suffix",), ("insecure_http",)}


@dataclass(frozen=True, slots=True)
class Complaint:
    """A fault at `path`; `{other}` in `text` stands for the key path of a cross-field rule's second value."""

    path: KeyPath
    text: str
    other: KeyPath = ()

    @property
    def destination(self) -> str | None:
        """The destination that is wrong; None where more than one may be."""
        return str(self.path[1]) if self.path[:1] == ("destinations",) and len(self.path) > 1 else None


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that was read (None: none was), the line of each key path, and the overriding variables.

    `mounted` are the files that it refers to for secrets.
    """

    file: str | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    variables: Mapping[KeyPath, str] = field(default_factory=dict)
    mounted: frozenset[str] = frozenset()

    def error(self, complaints: Iterable[Complaint]) -> ConfigError:
        """Return the error with one line for each different fault; an inherited one appears once."""
        return ConfigError("\n".join(dict.fromkeys(map(self._line, complaints))))

    def _line(self, complaint: Complaint) -> str:
        path = self.written(complaint.path)
        text = complaint.text.replace("{other}", dotted(self.written(complaint.other)))
        line = f"{self._place(path)}: {dotted(path)}: {text}" if path else f"{self._place(path)}: {text}"
        # A key may hold anything: a line break, or what a terminal obeys.
        return escaped(line)

    def written(self, path: KeyPath) -> KeyPath:
        """Where a key stands: one that a destination inherits in `defaults`, for all of them."""
        own = path in self.lines or path[2:3] in OWN_KEYS
        return ("defaults", *path[2:]) if path[:1] == ("destinations",) and len(path) > 2 and not own else path

    def _place(self, path: KeyPath) -> str:
        if variable := self.variables.get(path[:2]):
            return variable
        if self.file is None:
            return "configuration"
        for end in range(len(path), 0, -1):
            if line := self.lines.get(path[:end]):
                return f"{self.file}:{line}"
        return self.file


def dotted(path: KeyPath) -> str:
    """Return a key path as people write it: `destinations.billing.secrets[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
