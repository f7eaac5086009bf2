"""The dashboard over a seeded outbox, and those who come to it."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.conftest import Connection
from tests.web.seed import Seeded, seed
from tests.web.site import TOKENS, Site, log_in, site


@pytest.fixture
async def seeded(connection: Connection) -> Seeded:
    """An outbox on a bad night."""
    return await seed(connection)


@pytest.fixture
async def dashboard(database: str) -> AsyncIterator[Site]:
    """The dashboard and the API on a socket."""
    async with site(database) as found:
        yield found


@pytest.fixture
async def anybody(dashboard: Site) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has not logged in."""
    async with dashboard.browser() as browser:
        yield browser


@pytest.fixture
async def viewer(dashboard: Site) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has logged in with the viewer token."""
    async with dashboard.browser() as browser:
        assert (await log_in(browser, TOKENS["viewer"])).status_code == 303
        yield browser


@pytest.fixture
async def admin(dashboard: Site) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of Ada, who has logged in with the admin token."""
    async with dashboard.browser() as browser:
        assert (await log_in(browser, TOKENS["admin"], name="Ada")).status_code == 303
        yield browser
