"""`make screenshots`: docs/images/*.png, of a seeded outbox, in light, in dark and on a phone."""

from pathlib import Path

from playwright.async_api import Page

from tests.browser.conftest import Open
from tests.web.seed import Seeded

IMAGES = Path(__file__).parents[2] / "docs" / "images"


async def _keep(page: Page, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=IMAGES / f"{name}.png")


async def test_the_overview_in_light(window: Open) -> None:
    async with window() as page:
        await page.goto("/admin/")
        await page.set_viewport_size({"width": 1280, "height": 1290})
        await _keep(page, "overview-light")


async def test_a_dead_letter_in_dark(window: Open, seeded: Seeded) -> None:
    async with window(dark=True) as page:
        await page.goto(f"/admin/jobs/{seeded.heads[0]}")
        await page.set_viewport_size({"width": 1280, "height": 1000})
        await _keep(page, "job-dark")


async def test_the_overview_on_a_phone(window: Open) -> None:
    async with window(phone=True) as page:
        await page.goto("/admin/")
        await _keep(page, "overview-phone")
