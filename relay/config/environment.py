"""What the environment adds: settings by name, and the secrets that the file refers to."""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from relay.config.origin import KeyPath
from relay.config.values import Secret

PREFIX = "RELAY_"
FILE_VARIABLE = "RELAY_CONFIG"
MAX_SECRET_BYTES = 65_536
# Half of a character; in a variable, what is not UTF-8.
HALF = re.compile(r"[\ud800-\udfff]")
# Kubernetes sets these in every pod for each Service of the namespace; a Service may be named `relay`.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


class Environment(EnvSettingsSource):
    """`RELAY_<GROUP>_<KEY>` as nested values; lists and mappings are JSON; an empty variable is not set."""

    def __init__(self, tree: type[BaseSettings], environ: Mapping[str, str]) -> None:
        super().__init__(tree)
        names = {
            name: path
            for name, path in variables(tree).items()
            if environ.get(name) and not _linked(name, environ[name])
        }
        self.env_vars = {name.lower(): environ[name] for name in names}
        self.overriding = {path: name for name, path in names.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return the value of a JSON text, or the text itself, for the field's own rule to refuse."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def variables(tree: type[BaseModel]) -> dict[str, KeyPath]:
    """Return every variable that sets a key, with the key's path; destinations are set in the file only."""
    return {
        f"{PREFIX}{group}_{key}".upper(): (group, key)
        for group, field in tree.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        for key in field.annotation.model_fields
    }


def unknown(environ: Mapping[str, str], names: set[str]) -> Iterator[str]:
    """Yield a sentence for each RELAY_ variable that is not in `names`."""
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in names or _linked(name, value):
            continue
        near = difflib.get_close_matches(name, names, 1, cutoff=0.8)
        hint = f"did you mean {near[0]}?" if near else "no setting has this name; unset it"
        yield f"{name}: unknown variable; {hint}"


def _linked(name: str, value: str) -> bool:
    """Whether Kubernetes set this for a Service, be its name that of one of our settings."""
    return bool(_SERVICE_LINK.search(name) or (name.endswith("_PORT") and _SERVICE_URL.match(value)))


class References:
    """Replaces every `{env: NAME}` and `{file: PATH}` by its `Secret`; collects the names and files that were used."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.names: set[str] = set()
        self.files: set[str] = set()

    def read(self, value: Any, path: KeyPath = ()) -> Any:
        """Return `value` with its references read. What cannot be read becomes a `Secret` with a fault."""
        if isinstance(value, list):
            return [self.read(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        # A header may be called `env` or `file`.
        if len(value) == 1 and path[-1:] != ("headers",):
            match value:
                case {"env": str(name)}:
                    self.names.add(name)
                    return variable(name, self.environ)
                case {"file": str(name)}:
                    self.files.add(name)
                    return mounted(name)
        return {key: self.read(item, (*path, key)) for key, item in value.items()}


def variable(name: str, environ: Mapping[str, str]) -> Secret:
    """Return the secret in an environment variable."""
    if fault := _not_a_name(name):
        return Secret("environment", fault=fault)
    text = environ.get(name, "").rstrip("\r\n")
    if HALF.search(text):
        return Secret(f"env {name}", fault=f"environment variable {name} is not UTF-8 text")
    return Secret(f"env {name}", text, None if text else f"environment variable {name} is not set or empty")


def mounted(name: str) -> Secret:
    """Return the secret in a file; the newlines at its end belong to the file, not to the secret."""
    if fault := _not_a_name(name):
        return Secret("file", fault=fault)
    origin, text, fault = f"file {name}", "", None
    try:
        with Path(name).open("rb") as stream:
            data = stream.read(MAX_SECRET_BYTES + 1)
        text = data.decode().rstrip("\r\n")
        if not text or len(data) > MAX_SECRET_BYTES:
            fault = f"{origin} is empty or larger than {MAX_SECRET_BYTES} bytes"
    except UnicodeDecodeError:
        fault = f"{origin} is not UTF-8 text"
    except (OSError, ValueError) as error:
        fault = f"{origin} cannot be read: {getattr(error, 'strerror', None) or 'not a file name'}"
    return Secret(origin, "" if fault else text, fault)


def _not_a_name(name: str) -> str | None:
    """People put the secret where its name belongs; the name would be printed."""
    if not name or "whsec_" in name or "\n" in name or "-----" in name or "://" in name:
        return "holds a value where a name belongs: write {env: NAME} or {file: PATH}"
    return None
