"""The public Standard Webhooks libraries of two languages, behind one function."""

import base64
import fcntl
import functools
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from unittest.mock import patch

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "npm"
LIBRARY = CACHE / "node_modules" / "standardwebhooks"


@dataclass(frozen=True)
class Delivery:
    """What a receiver has in its hands: headers by lower-case name, the body, its secret, and its clock."""

    secret: str
    headers: dict[str, str]
    body: bytes
    now_s: float = field(default_factory=time.time)


Verified = Callable[[list[Delivery]], list[bool]]


def python(deliveries: list[Delivery]) -> list[bool]:
    """Which of them the Python library accepts."""
    return [_python(each) for each in deliveries]


def javascript(deliveries: list[Delivery]) -> list[bool]:
    """Which of them the npm library accepts; skips the test where node or the library cannot be had."""
    node, fault = shutil.which("node"), _install()
    if node is None or fault:
        pytest.skip(fault or "node is not installed")
    cases = [
        {"secret": each.secret, "headers": each.headers, "body": base64.b64encode(each.body).decode(),
         "now_s": each.now_s} for each in deliveries
    ]  # fmt: skip
    done = subprocess.run(
        [node, Path(__file__).parent / "javascript" / "verify.cjs"],
        input=json.dumps({"library": str(LIBRARY), "cases": cases}),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answers: list[bool] = json.loads(done.stdout)
    return answers


def _python(delivery: Delivery) -> bool:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls.fromtimestamp(delivery.now_s, tz)

    try:
        with patch("standardwebhooks.webhooks.datetime", Clock):
            Webhook(delivery.secret).verify(delivery.body, delivery.headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


@functools.cache
def _install() -> str:
    """Install the npm library once for this working copy; why it is not there, or nothing."""
    npm = shutil.which("npm")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes want it too
        if (LIBRARY / "package.json").exists():
            return ""
        if npm is None:
            return "npm is not installed"
        command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=20000"]
        try:
            subprocess.run(
                [*command, "--prefix", CACHE, "standardwebhooks@1"], capture_output=True, check=True, timeout=60
            )
        except subprocess.SubprocessError as error:
            shutil.rmtree(CACHE / "node_modules", ignore_errors=True)
            return f"npm could not install standardwebhooks: {error}"
    return ""
