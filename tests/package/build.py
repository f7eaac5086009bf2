"""What `make wheel` and `make sdist` build, built outside the checkout."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    """A wheel and an sdist of the same sources."""

    wheel: Path
    sdist: Path


def build(sources: Path, folder: Path) -> Built:
    """Build both from `sources` into `folder`, with the backend that is installed and without the network."""
    argv = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(argv, cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(next(folder.glob("*.whl")), next(folder.glob("*.tar.gz")))
