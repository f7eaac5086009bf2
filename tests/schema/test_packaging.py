"""The schema travels with the package, and the command that applies it is a process like any other."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from relay.migration import migrations

ROOT = Path(__file__).parents[2]
LOOK = """
import json, relay, relay.migration
print(json.dumps([relay.__file__, [each.checksum for each in relay.migration.migrations()]]))
"""


def relay(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    environment = {"PATH": os.environ["PATH"], "RELAY_DATABASE_DSN": dsn}
    command = [sys.executable, "-m", "relay", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_checkout_finds_the_files_beside_the_package() -> None:
    assert len(migrations()) == len(list((ROOT / "schema").glob("*.sql")))


def test_a_wheel_finds_the_files_inside_the_package(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    package, checksums = json.loads(done.stdout)
    assert Path(package).is_relative_to(installed)
    assert checksums == [migration.checksum for migration in migrations()]


def test_the_command_migrates_and_checks(new_database: str) -> None:
    before, applied, after = (relay(new_database, "migrate", *o) for o in (["--check"], [], ["--check"]))
    assert (before.returncode, applied.returncode, after.returncode) == (1, 0, 0)
    assert "run `relay migrate`" in before.stdout
    assert applied.stdout.startswith("applied 0001_job, ")
    assert migrations()[-1].name in after.stdout


def test_the_command_says_in_one_sentence_that_the_database_is_away(unused_port: int) -> None:
    done = relay(f"postgresql://relay:hunter2@127.0.0.1:{unused_port}/app", "migrate")
    assert done.returncode == 3
    assert "hunter2" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert str(unused_port) in done.stderr
