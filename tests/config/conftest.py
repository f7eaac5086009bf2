"""A configuration written to a real file and loaded as `relay` loads it."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.config import Settings, load
from relay.errors import ConfigError

SECRET = "whsec_" + "QUJD" * 8
DSN = "postgresql://relay:hunter2@127.0.0.1/app"

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """Load a YAML text, with a database and a signing secret `S` in the environment unless told otherwise."""

    def run(text: str | bytes, /, **environ: str) -> Settings:
        file = tmp_path / "relay.yaml"
        file.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return load(file, {"RELAY_DATABASE_DSN": DSN, "S": SECRET} | environ)

    return run


@pytest.fixture
def refused(loaded: Load, tmp_path: Path) -> Refused:
    """Return the lines of the refusal, from loading or from reading the secrets, with the folder left out."""

    def run(text: str | bytes, /, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            loaded(text, **environ).resolved_destinations()
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return run
