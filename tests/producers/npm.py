"""The npm packages that the pages' JavaScript imports."""

import fcntl
import subprocess
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "npm-producers"
PACKAGES = ["pg@8", "knex@3", "@opentelemetry/api@1", "@opentelemetry/core@2"]


def modules() -> Path:
    """Their folder, filled once for this working copy."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes want it too
        if not (CACHE / "complete").exists():
            install = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]
            subprocess.run([*install, "--prefix", CACHE, *PACKAGES], capture_output=True, check=True, timeout=120)
            (CACHE / "complete").touch()
    return CACHE / "node_modules"
