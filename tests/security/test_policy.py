"""SECURITY.md promises nothing that no test shows."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_policy_names_exists() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`(test_\w+)`", policy)
    defined = {
        name
        for file in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    assert named
    assert [name for name in named if name not in defined] == []


def test_every_threat_names_a_test() -> None:
    text = (ROOT / "SECURITY.md").read_text().split("## What they can try")[1]
    threats = [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| attempt", "| where"))
    ]
    assert len(threats) > 20
    assert [line for line in threats if not re.search(r"`test_\w+`[^|]*\|$", line)] == []
