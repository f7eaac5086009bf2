"""How a browser comes in, stays in, and goes out."""

import httpx
import pytest

from relay.web.admin.access import GUESSES
from tests.web.site import TOKENS, Site, form_token, log_in


async def test_a_token_opens_the_page_that_was_asked_for(anybody: httpx.AsyncClient) -> None:
    asked = await anybody.get("/admin/dead?error=503")
    assert (asked.status_code, asked.headers["location"]) == (303, "/admin/login?next=%2Fadmin%2Fdead%3Ferror%3D503")
    entered = await log_in(anybody, TOKENS["viewer"], wanted="/admin/dead?error=503")
    assert (entered.status_code, entered.headers["location"]) == (303, "/admin/dead?error=503")
    assert (await anybody.get("/admin/dead?error=503")).status_code == 200


async def test_a_wrong_token_opens_nothing(anybody: httpx.AsyncClient) -> None:
    answer = await log_in(anybody, "wrong")
    assert answer.status_code == 403
    assert "not a token" in answer.text
    assert (await anybody.get("/admin/")).status_code == 303


@pytest.mark.parametrize("proto", [None, "https"])
async def test_the_cookie_is_for_this_site_only_and_for_no_script(dashboard: Site, proto: str | None) -> None:
    async with dashboard.browser() as browser:
        if proto:
            browser.headers["X-Forwarded-Proto"] = proto
        shown = await browser.get("/admin/login")
        # Over plain http the client would keep a secure cookie to itself.
        cookie = shown.headers["set-cookie"].split(";")[0]
        fields = {"form_token": form_token(shown), "token": TOKENS["admin"]}
        entered = await browser.post("/admin/login", data=fields, headers={"Cookie": cookie})
    assert entered.status_code == 303
    wanted = {"httponly", "samesite=strict", "path=/admin"} | ({"secure"} if proto else set())
    for answer in (shown, entered):
        said = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
        assert said == wanted | {f"max-age={8 * 3600}"}


async def test_what_was_known_before_the_login_is_worth_nothing_after_it(anybody: httpx.AsyncClient) -> None:
    await anybody.get("/admin/login")
    before = anybody.cookies["relay_session"]
    await log_in(anybody, TOKENS["admin"])
    assert anybody.cookies["relay_session"] != before
    anybody.cookies.clear()
    assert (await anybody.get("/admin/", headers={"Cookie": f"relay_session={before}"})).status_code == 303


async def test_after_ten_wrong_tokens_no_token_of_that_address_is_looked_at_for_a_while(
    dashboard: Site, viewer: httpx.AsyncClient
) -> None:
    async with dashboard.program("wrong") as stranger, dashboard.program(TOKENS["admin"]) as friend:
        answers = [(await stranger.get("/admin/api/v1/status")).status_code for _ in range(GUESSES + 1)]
        assert answers == [401] * GUESSES + [429]
        refused = await friend.get("/admin/api/v1/status")
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 61
    async with dashboard.browser() as browser:
        assert (await log_in(browser, TOKENS["admin"])).status_code == 429
    # Who has logged in is not thrown out by a stranger.
    assert (await viewer.get("/admin/")).status_code == 200


async def test_an_address_is_where_the_connection_comes_from_whatever_it_says(dashboard: Site) -> None:
    async with dashboard.program("wrong") as stranger:
        answers = [
            (await stranger.get("/admin/api/v1/status", headers={"X-Forwarded-For": f"192.0.2.{number}"})).status_code
            for number in range(GUESSES + 1)
        ]
    assert answers == [401] * GUESSES + [429]


async def test_a_form_of_very_many_fields_is_refused(anybody: httpx.AsyncClient) -> None:
    answer = await anybody.post("/admin/login", data={f"field{number}": "" for number in range(101)})
    assert answer.status_code == 400
    assert "more than 100 fields" in answer.text


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/admin/", "//evil.example/admin/", "/\\evil.example", "/admin/\\evil",
        "javascript:alert(1)",
        "/other", "", "admin/", "/admin/\r\nSet-Cookie: a=b", "https:/admin/",
    ],
)  # fmt: skip
async def test_after_the_login_nobody_is_sent_elsewhere(anybody: httpx.AsyncClient, wanted: str) -> None:
    entered = await log_in(anybody, TOKENS["viewer"], wanted=wanted)
    assert (entered.status_code, entered.headers["location"]) == (303, "/admin/")


async def test_who_has_logged_in_is_not_asked_again(viewer: httpx.AsyncClient) -> None:
    answer = await viewer.get("/admin/login?next=/admin/dead")
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin/dead")


async def test_a_link_from_elsewhere_comes_without_the_cookie_and_is_loaded_again(anybody: httpx.AsyncClient) -> None:
    answer = await anybody.get("/admin/jobs/1", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0"' in answer.text
    assert "set-cookie" not in answer.headers


async def test_logging_out_ends_the_session(admin: httpx.AsyncClient) -> None:
    token = form_token(await admin.get("/admin/"))
    left = await admin.post("/admin/logout", data={"form_token": token})
    assert (left.status_code, left.headers["location"]) == (303, "/admin/login")
    assert (await admin.get("/admin/")).status_code == 303


async def test_a_name_is_one_printable_line(anybody: httpx.AsyncClient) -> None:
    await log_in(anybody, TOKENS["viewer"], name="  Ada\r\n\x07<b>Lovelace</b>  " + "x" * 100)
    page = (await anybody.get("/admin/")).text
    assert f"&lt;/b&gt; {'x' * (80 - len('Ada <b>Lovelace</b> '))} (viewer token)</span>" in page
