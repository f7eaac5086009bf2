"""What can be said of the Dockerfile without building it; image.py builds and runs it."""

import re
import subprocess
import sys
from pathlib import Path

from tests.image.store import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_package_is_installed_by_its_hash() -> None:
    installs = re.findall(r"pip (?:--python \S+ )?install (.*)", DOCKERFILE)
    assert len(installs) == 3
    assert [each for each in installs if "--require-hashes" not in each and "--no-index" not in each] == []


def test_the_user_is_a_number_other_than_roots() -> None:
    [user] = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_the_relay_is_started_without_a_shell() -> None:
    commands = re.findall(r"^(?:ENTRYPOINT|CMD| +CMD) (.*)$", DOCKERFILE, re.MULTILINE)
    assert len(commands) == 3
    assert [each for each in commands if not each.startswith("[")] == []
