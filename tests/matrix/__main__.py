"""`make matrix`: what talks to the database, on every PostgreSQL from 14 to 18 with every Python of this machine.

Each Python gets an environment of its own below .cache/matrix, kept for the next run.
"""

import argparse
import os
import re
import subprocess
import time
from pathlib import Path

from tests.pythons import pythons

ROOT = Path(__file__).parents[2]
MAJORS = ("14", "15", "16", "17", "18")
SUITE = ("tests/schema", "tests/store", "tests/stages", "tests/service/test_delivery.py")


def environment(name: str, python: Path) -> Path:
    """The interpreter of an environment with everything that the tests need."""
    home = ROOT / ".cache/matrix" / re.sub(r"[^0-9a-z.]+", "-", name.lower())
    ready = home / ".ready"
    if not ready.exists():
        pip = (home / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([python, "-m", "venv", "--clear", home], check=True)
        subprocess.run([*pip, "--require-hashes", "-r", ROOT / "requirements-dev.txt"], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT], check=True)
        ready.touch()
    return home / "bin/python"


def main() -> int:
    """Runs every pair, one after the other, and prints a line for each; how many failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--majors", nargs="+", default=MAJORS, metavar="MAJOR")
    parser.add_argument("--tests", nargs="+", default=SUITE, metavar="TESTS")
    arguments = parser.parse_args()
    failed = 0
    for name, python in pythons().items():
        interpreter = environment(name, python)
        for major in arguments.majors:
            started_s = time.monotonic()
            done = subprocess.run(
                [interpreter, "-m", "pytest", "-n", "2", "-q", *arguments.tests],
                cwd=ROOT, env={**os.environ, "RELAY_TEST_POSTGRES": major},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            summary = (done.stdout.strip().splitlines() or ["nothing was printed"])[-1].strip("= ")
            print(f"Python {name:40} PostgreSQL {major:3} {summary} ({time.monotonic() - started_s:.0f} s)", flush=True)
            if done.returncode != 0:
                failed += 1
                print(done.stdout[-4000:] + done.stderr[-2000:], flush=True)
    print(f"{failed} of the pairs failed" if failed else "every pair passed")
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
