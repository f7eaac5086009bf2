"""Chromium in front of the dashboard. Whatever a test does, nothing on the console: no error, no refused request."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.browser.axe import axe
from tests.conftest import Connection
from tests.web.seed import Seeded, seed
from tests.web.site import TOKENS, Site, site

# Chromium runs as root in CI, without a graphics card; and it has nobody to talk to but us.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

Open = Callable[..., contextlib.AbstractAsyncContextManager[Page]]


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """One browser for all tests; each opens windows of its own."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
async def rules() -> str:
    """The accessibility rules of axe-core, as a script."""
    return await asyncio.to_thread(axe)


@pytest.fixture
async def seeded(connection: Connection) -> Seeded:
    """An outbox on a bad night."""
    return await seed(connection)


@pytest.fixture
async def dashboard(database: str, seeded: Seeded) -> AsyncIterator[Site]:
    """The dashboard over it, with an hour of traffic behind it."""
    assert seeded
    async with site(database) as found:
        found.remember()
        yield found


@pytest.fixture
def window(chromium: Browser, dashboard: Site) -> Open:
    """Open a window: `phone`, `dark`, logged in with the token of `role` unless that is None.

    An error on the console that contains `expected` is none.
    """

    @contextlib.asynccontextmanager
    async def opened(
        *, role: str | None = "admin", phone: bool = False, dark: bool = False, expected: str = "\0"
    ) -> AsyncIterator[Page]:
        context = await chromium.new_context(
            base_url=dashboard.origin,
            viewport={"width": 375, "height": 700} if phone else {"width": 1280, "height": 800},
            is_mobile=phone,
            has_touch=phone,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        page = await context.new_page()
        faults: list[str] = []
        page.on("console", lambda said: faults.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        if role is not None:
            await log_in(page, TOKENS["admin" if role == "admin" else "viewer"])
        yield page
        await context.close()
        assert [fault for fault in faults if expected not in fault] == []

    return opened


async def log_in(page: Page, token: str, name: str = "Ada") -> None:
    """Fill in the form, as a person does."""
    await page.goto("/admin/")
    await page.get_by_label("Token").fill(token)
    await page.get_by_label("Your name").fill(name)
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("heading", name="Overview").wait_for()
