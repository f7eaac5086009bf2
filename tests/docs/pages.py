"""The pages of the repository, and what stands in them."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("schema/*.md")])

_SNIPPET = r"<!-- test: {} -->\n```\w+\n(.*?)^```$"
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")


def text(page: str) -> str:
    """A page by its path from the root."""
    return (ROOT / page).read_text()


def snippet(page: str, name: str) -> str:
    """The block of code of a page that follows the comment `test: NAME`."""
    found = re.findall(_SNIPPET.format(name), text(page), re.DOTALL | re.MULTILINE)
    assert len(found) == 1, f"{page} has {len(found)} blocks marked with <!-- test: {name} -->"
    return str(found[0])


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE)


def prose(markdown: str) -> str:
    """A page without its blocks of code."""
    return _BLOCK.sub("", markdown)


def inline_code(markdown: str) -> list[str]:
    """What stands between backticks, outside of blocks."""
    return _INLINE.findall(prose(markdown))


def table(page: str, first: str) -> list[list[str]]:
    """The rows, without the head, of the table of a page whose first head cell is `first`; cells as written."""
    found: list[list[str]] = []
    rows = iter(text(page).splitlines())
    for row in rows:
        if row.startswith(f"| {first} |"):
            next(rows)
            found = [_cells(each) for each in _while_table(rows)]
            break
    assert found, f"{page} has no table that begins with {first}"
    return found


def _while_table(rows: Iterator[str]) -> Iterator[str]:
    for row in rows:
        if not row.startswith("|"):
            return
        yield row


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def tracked() -> list[Path]:
    """The files that git knows; skips the test where this is no checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]
