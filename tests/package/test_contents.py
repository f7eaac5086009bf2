"""What is in the wheel and the sdist, and what is in neither."""

import re
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from relay import __version__
from relay.migration import migrations
from tests.package.build import ROOT, Built, build

MIGRATIONS = {f"{migration.name}.sql" for migration in migrations()}
STATEMENTS = {path.name for path in (ROOT / "relay/sql").iterdir()}


def in_wheel(built: Built) -> set[str]:
    with zipfile.ZipFile(built.wheel) as wheel:
        return set(wheel.namelist())


def in_sdist(built: Built) -> set[str]:
    with tarfile.open(built.sdist) as sdist:
        return {member.name.partition("/")[2] for member in sdist if member.isfile()}


def metadata(built: Built) -> Message:
    with zipfile.ZipFile(built.wheel) as wheel:
        return message_from_bytes(wheel.read(f"outbox_relay-{__version__}.dist-info/METADATA"))


def test_the_wheel_has_every_migration_inside_the_package(built: Built) -> None:
    assert {name.removeprefix("relay/_schema/") for name in in_wheel(built) if name.endswith(".sql")} >= MIGRATIONS


def test_the_wheel_has_every_statement(built: Built) -> None:
    assert {f"relay/sql/{name}" for name in STATEMENTS} <= in_wheel(built)


def test_the_wheel_has_the_licence_and_the_marker_of_a_typed_package(built: Built) -> None:
    assert {"relay/py.typed", f"outbox_relay-{__version__}.dist-info/licenses/LICENSE"} <= in_wheel(built)


def test_the_wheel_has_nothing_beside_the_package(built: Built) -> None:
    tops = {name.partition("/")[0] for name in in_wheel(built)}
    assert tops == {"relay", f"outbox_relay-{__version__}.dist-info"}


def test_the_sdist_has_what_building_and_testing_need(built: Built) -> None:
    wanted = {"LICENSE", "README.md", "pyproject.toml", "Makefile", "requirements.txt", "requirements-demo.txt",
              "requirements-dev.txt", "relay/py.typed", "tests/conftest.py"}  # fmt: skip
    assert wanted | {f"schema/{name}" for name in MIGRATIONS} <= in_sdist(built)


def test_a_wheel_built_from_the_sdist_is_the_same(built: Built, tmp_path: Path) -> None:
    # Not tarfile's own: its `filter` is missing in Python 3.11.2, and from 3.12 on it must be given.
    subprocess.run(["tar", "-xf", str(built.sdist), "-C", str(tmp_path)], check=True)
    again = build(next(tmp_path.iterdir()), tmp_path / "dist")
    assert again.wheel.read_bytes() == built.wheel.read_bytes()


def test_the_version_stands_in_one_place(built: Built) -> None:
    assert metadata(built)["Version"] == __version__
    sources = [ROOT / "pyproject.toml", *(ROOT / "relay").rglob("*.py")]
    quoted = re.compile(rf"""["']{re.escape(__version__)}["']""")
    assert [path.relative_to(ROOT).as_posix() for path in sources if quoted.search(path.read_text())] == [
        "relay/__init__.py"
    ]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-demo.txt", "requirements-dev.txt"])
def test_requirements_are_pinned_by_hash_and_name_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^ *-", re.sub(r"--hash=sha256:[0-9a-f]{64}", "", text), re.MULTILINE)
    logical = [line for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
    assert logical
    assert [line for line in logical if "==" not in line or "--hash=sha256:" not in line] == []


def test_each_file_of_requirements_pins_the_versions_of_the_larger_one() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^\S+==\S+", (ROOT / name).read_text(), re.MULTILINE))

    assert pins("requirements.txt") < pins("requirements-demo.txt") < pins("requirements-dev.txt")


def test_the_wheel_asks_for_what_the_requirements_pin(built: Built) -> None:
    def name(requirement: str) -> str:
        return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")

    wanted = {name(each) for each in metadata(built).get_all("Requires-Dist", []) if "extra ==" not in each}
    pinned = {name(line) for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line}
    assert wanted <= pinned
