"""`make package-test`: the wheel in a clean environment of every Python on this machine, away from the checkout.

Not part of the core suite: each Python downloads and installs everything that the relay needs.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay import __version__
from tests.package.build import ROOT, Built
from tests.pythons import pythons

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and nothing else of ours; `run` works in an empty folder."""

    environment: Path
    folder: Path

    def run(self, *argv: str, timeout_s: float = 120) -> str:
        """What the program said; fails when its exit code is not 0."""
        clean = {
            name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "RELAY_", "VIRTUAL"))
        }
        done = subprocess.run(
            [str(self.environment / "bin" / argv[0]), *argv[1:]],
            cwd=self.folder, env=clean, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


PYTHONS = pythons()


@pytest.fixture(scope="module", params=list(PYTHONS.values()), ids=list(PYTHONS))
def installed(
    request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    home = tmp_path_factory.mktemp("installed")
    (home / "folder").mkdir()
    subprocess.run([request.param, "-m", "venv", str(home / "environment")], check=True)
    installed = Installed(home / "environment", home / "folder")
    pip = ("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    installed.run(*pip, "--require-hashes", "-r", str(ROOT / "requirements-demo.txt"), timeout_s=300)
    installed.run(*pip, "--no-deps", "--no-index", str(built.wheel))
    yield installed
    shutil.rmtree(home)


def test_the_wheel_needs_nothing_that_the_requirements_lack(installed: Installed) -> None:
    assert "No broken requirements" in installed.run("python", "-m", "pip", "check")


def test_what_runs_is_the_wheel(installed: Installed) -> None:
    place = installed.run("python", "-c", "import relay; print(relay.__file__)").strip()
    assert Path(place).is_relative_to(installed.environment)


def test_relay_tells_its_version(installed: Installed) -> None:
    assert installed.run("relay", "--version") == f"relay, version {__version__}\n"


def test_the_module_is_the_command(installed: Installed) -> None:
    assert installed.run("python", "-m", "relay", "--version") == f"relay, version {__version__}\n"


def test_the_demo_keeps_the_promise(installed: Installed) -> None:
    said = installed.run("relay", "demo", "--seconds", "5", "--json")
    summary = json.loads(said.splitlines()[-1])
    assert (summary["lost"], summary["inversions"], summary["killed_replicas"]) == (0, 0, 1)
    assert summary["delivered"] > 0
