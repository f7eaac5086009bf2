"""The Pythons of this machine that the relay supports."""

import os
import re
import subprocess
from pathlib import Path

USABLE = (
    "import sys, venv, ensurepip; assert sys.version_info >= (3, 11); print(*sys.version_info[:3], sys.base_prefix)"
)


def pythons() -> dict[str, Path]:
    """Every Python >= 3.11 that can make an environment, one of each installation, by version and place."""
    places = [Path(place) for place in (*os.environ["PATH"].split(os.pathsep), "/usr/local/bin", "/usr/bin")]
    places += Path.home().glob(".pyenv/versions/*/bin")
    found: dict[str, Path] = {}
    for python in (python for place in places for python in sorted(place.glob("python3*"))):
        if re.fullmatch(r"python3(\.\d+)?", python.name):
            said = subprocess.run([str(python), "-c", USABLE], capture_output=True, text=True, check=False)
            if said.returncode == 0:
                *version, prefix = said.stdout.split()
                found.setdefault(f"{'.'.join(version)} in {prefix}", python)
    return found
