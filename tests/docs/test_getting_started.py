"""docs/getting-started.md, by copy and paste into two terminals."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from relay.demo.stand import DSN
from tests.docs.pages import ROOT, text
from tests.service.table import rows, until

END = "that was the block"


def blocks(terminal: str) -> list[str]:
    """The commands of the page for one terminal, block by block."""
    fence = rf"<!-- terminal: {terminal} -->\n```sh\n(.*?)^```$"
    return re.findall(fence, text("docs/getting-started.md"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder like this checkout, in which a page may leave files."""
    for entry in ROOT.iterdir():
        if entry.name != ".venv":
            (tmp_path / entry.name).symlink_to(entry)
    # Ready, or make would install this folder into the environment of the tests.
    (tmp_path / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name != ".demo":
            (tmp_path / ".venv" / entry.name).symlink_to(entry)
    (tmp_path / ".venv/.demo").touch()
    return tmp_path


class Terminal:
    """A shell that is typed into."""

    def __init__(self, shell: asyncio.subprocess.Process) -> None:
        self._shell = shell

    async def paste(self, commands: str) -> str:
        """Types a block; what it printed. Fails where its last command did."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{commands}\necho {END} $?\n".encode())
        printed = ""
        while END not in printed:
            line = (await self._shell.stdout.readline()).decode()
            assert line, f"the shell ended: {printed}"
            printed += line
        assert printed.rstrip().endswith(f"{END} 0"), printed
        return printed


@asynccontextmanager
async def terminal(folder: Path) -> AsyncIterator[Terminal]:
    """A shell in `folder`, ended with everything it has started."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "MAKE"))}
    shell = await asyncio.create_subprocess_exec(
        "bash", "-m", cwd=folder, env=clean, start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield Terminal(shell)
    finally:
        assert shell.stdin is not None
        shell.stdin.close()
        os.killpg(shell.pid, signal.SIGTERM)
        await shell.wait()


async def test_the_page_leads_to_a_delivery_a_dead_letter_and_what_became_of_it(clone: Path) -> None:
    async with terminal(clone) as stand, terminal(clone) as shop:
        [start] = blocks("stand")
        standing = asyncio.create_task(stand.paste(start))
        try:
            await _answers()
            configure, run, insert, look, refuse, discard, stop = blocks("shop")
            assert "applied" in await shop.paste(configure)
            await shop.paste(run)
            async with await psycopg.AsyncConnection.connect(DSN, autocommit=True) as connection:
                await shop.paste(insert)
                await until(connection, "SELECT count(*) = 1 FROM outbox.job WHERE status = 'done'")
                assert "billing" in await shop.paste(look)
                await shop.paste(refuse)
                await until(connection, "SELECT count(*) = 1 FROM outbox.job WHERE status = 'dead'")
                assert "discard" in await shop.paste(discard)
                await until(connection, "SELECT count(*) = 2 FROM outbox.job WHERE status = 'done'")
                found = await rows(connection, "SELECT id, status FROM outbox.job ORDER BY id")
            await shop.paste(stop)
        finally:
            standing.cancel()
    assert found == [(1, "done"), (2, "discarded"), (3, "done")]


async def _answers() -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await (await psycopg.AsyncConnection.connect(DSN)).close()
            except psycopg.OperationalError:
                await asyncio.sleep(0.05)
            else:
                return
