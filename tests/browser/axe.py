"""The rules of axe-core, installed once for this working copy from npm."""

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Any

from playwright.async_api import Page

_CACHE = Path(__file__).parents[2] / ".cache" / "npm-axe"
_SCRIPT = _CACHE / "node_modules" / "axe-core" / "axe.min.js"


def axe() -> str:
    """The script. Raises where npm cannot install it: a rule that was not looked at is not kept."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _SCRIPT.exists():
            npm = shutil.which("npm")
            assert npm, "npm is not installed; it brings axe-core"
            command = [
                npm,
                "install",
                "--no-save",
                "--no-package-lock",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(_CACHE),
            ]
            subprocess.run([*command, "axe-core@4"], check=True, capture_output=True, timeout=60)
    return _SCRIPT.read_text()


async def violations(page: Page, rules: str) -> list[Any]:
    """What axe-core finds on a page, in WCAG 2.2 A and AA and its best practices: rule, and where."""
    await page.evaluate(rules)
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]]
