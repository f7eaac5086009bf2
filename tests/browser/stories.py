"""`make browser`: what an operator does at night, in a real Chromium.

Not part of the core suite: it needs Chromium and npm.
"""

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import Open
from tests.conftest import Connection
from tests.web.seed import MARKUP, TRACE_ID, Seeded, one

PATHS = ["/", "/dead", "/operations", "/destinations/billing", "/destinations/shipping", "/dead/redrive?all=1",
         "/dead/discard?id=6", "/jobs/1", "/jobs/4", "/jobs/129", "/jobs/117/cancel"]  # fmt: skip


async def status(connection: Connection, job_id: int) -> object:
    """The status of a job."""
    [found] = await one(connection, "SELECT status FROM outbox.job WHERE id = %s", job_id)
    return found


async def test_an_operator_sees_what_is_wrong_first(window: Open) -> None:
    async with window() as page:
        attention = page.get_by_role("region", name=re.compile("Look at"))
        await expect(attention).to_contain_text("5 dead letters; 3 entities stand still behind them")
        await expect(attention).to_contain_text("their maintenance until 18:00")
        await expect(attention).to_contain_text("the breaker of this replica is open")
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="billing"))
        await expect(row.get_by_role("cell").nth(4)).to_have_text("20")
        await expect(page.get_by_role("img", name="Attempts a minute")).to_be_visible()


async def test_dead_letters_are_found_and_opened(window: Open, seeded: Seeded) -> None:
    async with window() as page:
        await page.get_by_role("link", name="Dead letters", exact=True).click()
        await page.get_by_label("Topic").fill("order.*")
        await page.get_by_label("Entity").fill("order-2")
        await page.get_by_role("button", name="Search").click()
        await expect(page.get_by_role("status")).to_have_text("1 shown.")
        await page.get_by_role("link", name=str(seeded.heads[1]), exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text(f"Job {seeded.heads[1]} dead")
        await expect(page.get_by_label("Payload")).to_have_text('{"order_id": 2, "total": "19.99"}')
        await expect(page.locator("main")).to_contain_text(TRACE_ID)
        await page.get_by_text("how it begins").first.click()
        await expect(page.locator("details pre").first).to_contain_text("upstream is down")


async def test_a_redrive_says_what_it_would_do_and_then_does_it(
    window: Open, seeded: Seeded, connection: Connection
) -> None:
    head = seeded.heads[0]
    async with window() as page:
        await page.goto("/admin/dead?destination=billing")
        await page.get_by_label(f"Choose job {head}").check()
        await page.get_by_role("button", name="Redrive the chosen").click()
        await expect(page.get_by_role("status")).to_have_text(
            "Dry run. 1 job would be redriven (billing 1). Nothing has changed yet."
        )
        assert await status(connection, head) == "dead"
        await page.get_by_label("Why").fill("their database is back")
        await page.get_by_role("button", name="Redrive 1 job").click()
        await expect(page.get_by_role("status")).to_have_text("1 job was redriven (billing 1).")
    assert await status(connection, head) == "pending"
    kept = await one(connection, "SELECT actor, verb, detail ->> 'why' FROM outbox.operation WHERE job_id = %s", head)
    assert kept == ("Ada (admin token)", "redrive", "their database is back")


async def test_all_that_fit_are_discarded_and_their_entities_go_on(
    window: Open, seeded: Seeded, connection: Connection
) -> None:
    async with window() as page:
        await page.goto("/admin/dead?destination=billing&topic=order.*")
        await page.get_by_role("link", name="Discard all").click()
        await expect(page.get_by_role("status")).to_contain_text("3 jobs would be discarded (billing 3)")
        await page.get_by_role("button", name="Discard 3 jobs").click()
        await expect(page.get_by_role("status")).to_contain_text("3 jobs were discarded")
    assert [await status(connection, head) for head in seeded.heads] == ["discarded"] * 3
    assert await one(
        connection, "SELECT count(*) FROM outbox.job WHERE status = 'pending' AND entity_key ~ 'order'"
    ) == (3,)


async def test_an_overtaken_job_is_sent_only_where_somebody_says_so(
    window: Open, seeded: Seeded, connection: Connection
) -> None:
    async with window() as page:
        await page.goto(f"/admin/dead/redrive?id={seeded.overtaken}")
        await expect(page.get_by_role("status")).to_contain_text("0 jobs would be redriven, 1 refused")
        await page.get_by_label("out of order").check()
        await page.get_by_role("button", name="Redrive 1 job").click()
        await expect(page.get_by_role("status")).to_contain_text("1 of them marked Relay-Redrive")
    assert await one(connection, "SELECT status, redrive FROM outbox.job WHERE id = %s", seeded.overtaken) == (
        "pending",
        True,
    )


async def test_a_destination_is_paused_with_a_reason_and_resumed(window: Open, connection: Connection) -> None:
    async with window() as page:
        await page.goto("/admin/destinations/billing")
        await page.get_by_label("Why").fill("looking at it")
        await page.get_by_role("button", name="Pause billing").click()
        await expect(page.locator(".facts")).to_contain_text("paused: looking at it")
        await page.get_by_role("button", name="Resume billing").click()
        await expect(page.get_by_role("button", name="Pause billing")).to_be_visible()
    assert await one(connection, "SELECT paused_at FROM outbox.destination WHERE name = 'billing'") == (None,)


async def test_a_waiting_job_is_found_by_its_key_and_discarded(
    window: Open, seeded: Seeded, connection: Connection
) -> None:
    async with window() as page:
        await page.get_by_role("textbox", name="Job").fill("waits-1")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Discard").click()
        await page.get_by_role("button", name=f"Discard job {seeded.waits}").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("discarded")
    assert await status(connection, seeded.waits) == "discarded"


async def test_a_viewer_sees_no_way_to_change_anything(window: Open) -> None:
    async with window(role="viewer") as page:
        for path in ["/", "/dead", "/destinations/billing", "/destinations/shipping", "/jobs/1", "/jobs/117"]:
            await page.goto(f"/admin{path}")
            assert await page.locator("main form[method=post], main a[href*=cancel]").count() == 0
            for name in ("Redrive", "Discard", "Pause", "Resume", "Choose"):
                ways = [page.get_by_role(role, name=re.compile(name)) for role in ("button", "link", "checkbox")]
                assert [await way.count() for way in ways] == [0, 0, 0]


async def test_markup_in_a_payload_is_text(window: Open, seeded: Seeded) -> None:
    async with window() as page:
        await page.goto(f"/admin/jobs/{seeded.loose[0]}")
        await expect(page.get_by_label("Payload")).to_have_text(MARKUP)
        assert await page.locator("main script, main img").count() == 0
        assert await page.title() == f"Job {seeded.loose[0]} · Relay"


async def test_a_redrive_needs_no_mouse(window: Open, seeded: Seeded, connection: Connection) -> None:
    head = seeded.heads[0]
    async with window() as page:
        await page.goto("/admin/dead?entity=order-1")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        await _tab_to(page, f"Choose job {head}")
        await page.keyboard.press("Space")
        await _tab_to(page, "Redrive the chosen…")
        await page.keyboard.press("Enter")
        await page.get_by_text("Dry run.").wait_for()
        await _tab_to(page, "Redrive 1 job")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Done").wait_for()
    assert await status(connection, head) == "pending"


async def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with this name has the focus, and shows it."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        named = await page.evaluate(
            "(e => e.getAttribute('aria-label') || e.textContent.trim())(document.activeElement)"
        )
        if named == name:
            style = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert style == "solid", f"the focus on {name} cannot be seen"
            return
    raise AssertionError(f"Tab does not come to {name}")


async def test_the_overview_renews_itself_where_that_is_wanted(window: Open, connection: Connection) -> None:
    async with window() as page:
        await page.clock.install()
        await page.reload()
        await page.get_by_label("Refresh every 10 s").check()
        await page.evaluate("document.activeElement.blur()")
        await connection.execute("UPDATE outbox.destination SET paused_at = NULL, paused_why = NULL")
        await page.clock.run_for(11_000)
        await expect(page.locator("#told")).to_have_text("Look at 5 things")
        await expect(page.locator("#live")).not_to_contain_text("maintenance")


@pytest.mark.parametrize(("phone", "dark"), [(False, False), (True, True)], ids=["desk and light", "phone and dark"])
async def test_every_page_keeps_the_rules_of_accessibility_and_fits_its_window(
    window: Open, rules: str, *, phone: bool, dark: bool
) -> None:
    async with window(phone=phone, dark=dark) as page:
        for path in PATHS:
            await page.goto(f"/admin{path}")
            await page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert (path, await violations(page, rules)) == (path, [])
            overhang = await page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert (path, overhang) == (path, 0)


async def test_the_login_keeps_the_rules_of_accessibility(window: Open, rules: str) -> None:
    async with window(role=None, phone=True) as page:
        await page.goto("/admin/login")
        assert await violations(page, rules) == []


async def test_dark_is_dark(window: Open) -> None:
    for dark, ground in ((False, "rgb(255, 255, 255)"), (True, "rgb(20, 23, 26)")):
        async with window(dark=dark) as page:
            await expect(page.locator("body")).to_have_css("background-color", ground)


async def test_a_script_in_a_page_would_be_refused(window: Open) -> None:
    async with window(expected="Executing inline event handler violates") as page:
        refused = await page.evaluate(
            """() => new Promise(resolve => {
                document.addEventListener('securitypolicyviolation', event => resolve(event.effectiveDirective));
                const image = document.createElement('img');
                image.setAttribute('onerror', 'document.title = "owned"');
                document.body.append(image);
            })"""
        )
        assert refused == "script-src-attr"
