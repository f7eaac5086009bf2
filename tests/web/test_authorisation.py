"""Who may ask what: every route, for everybody who may come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from relay.web.admin.desk import Desk
from relay.web.admin.mount import mount
from tests.conftest import Connection
from tests.web.seed import Seeded, one
from tests.web.site import TOKENS, Site, form_token


@dataclass(frozen=True)
class Asked:
    """One route with values for its places; `changes` what the database holds, or would with the right body."""

    method: str
    path: str
    example: str
    changes: bool = False
    open: bool = False


LOOK = [
    Asked("GET", "/admin/", "/admin/"),
    Asked("GET", "/admin/destinations/{name}", "/admin/destinations/billing"),
    Asked("GET", "/admin/dead", "/admin/dead"),
    Asked("GET", "/admin/jobs", "/admin/jobs?q=binary"),
    Asked("GET", "/admin/jobs/{id}", "/admin/jobs/1"),
    Asked("GET", "/admin/operations", "/admin/operations"),
    Asked("GET", "/admin/dead/redrive", "/admin/dead/redrive?id=1", changes=True),
    Asked("GET", "/admin/dead/discard", "/admin/dead/discard?id=1", changes=True),
    Asked("GET", "/admin/jobs/{id}/cancel", "/admin/jobs/117/cancel", changes=True),
]
FORMS = [
    Asked("POST", "/admin/dead/redrive", "/admin/dead/redrive", changes=True),
    Asked("POST", "/admin/dead/discard", "/admin/dead/discard", changes=True),
    Asked("POST", "/admin/jobs/{id}/cancel", "/admin/jobs/117/cancel", changes=True),
    Asked("POST", "/admin/destinations/{name}/pause", "/admin/destinations/billing/pause", changes=True),
    Asked("POST", "/admin/destinations/{name}/resume", "/admin/destinations/shipping/resume", changes=True),
]
OPEN = [
    Asked("GET", "/admin/login", "/admin/login", open=True),
    Asked("POST", "/admin/login", "/admin/login", open=True),
    Asked("POST", "/admin/logout", "/admin/logout", open=True),
    Asked("GET", "/admin/static", "/admin/static/app.css", open=True),
]
API = [
    Asked("GET", "/admin/api/openapi.json", "/admin/api/openapi.json"),
    Asked("GET", "/admin/api/v1/status", "/admin/api/v1/status"),
    Asked("GET", "/admin/api/v1/traffic", "/admin/api/v1/traffic"),
    Asked("GET", "/admin/api/v1/dead", "/admin/api/v1/dead"),
    Asked("GET", "/admin/api/v1/jobs", "/admin/api/v1/jobs?key=binary"),
    Asked("GET", "/admin/api/v1/jobs/{id}", "/admin/api/v1/jobs/1"),
    Asked("GET", "/admin/api/v1/operations", "/admin/api/v1/operations"),
    Asked("POST", "/admin/api/v1/dead/redrive", "/admin/api/v1/dead/redrive", changes=True),
    Asked("POST", "/admin/api/v1/dead/discard", "/admin/api/v1/dead/discard", changes=True),
    Asked("POST", "/admin/api/v1/jobs/{id}/cancel", "/admin/api/v1/jobs/117/cancel", changes=True),
    Asked("POST", "/admin/api/v1/destinations/{name}/pause", "/admin/api/v1/destinations/billing/pause", changes=True),
    Asked(
        "POST", "/admin/api/v1/destinations/{name}/resume", "/admin/api/v1/destinations/shipping/resume", changes=True
    ),
]
# What the admin token gets for an empty body.
SAID = {
    "/admin/api/v1/dead/redrive": 400,
    "/admin/api/v1/dead/discard": 400,
    "/admin/dead/redrive": 400,
    "/admin/dead/discard": 400,
}


def name(asked: Asked) -> str:
    """For the test's name."""
    return f"{asked.method} {asked.path}"


def _routes(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Route):
            yield from ((method, prefix + route.path) for method in (route.methods or set()) - {"HEAD"})
        elif isinstance(route, Mount) and isinstance(route.app, StaticFiles):
            yield "GET", prefix + route.path
        elif isinstance(route, Mount):
            below = route.app.routes if isinstance(route.app, Starlette) else route.routes
            yield from _routes(below, prefix + route.path)


def test_the_tables_have_every_route_and_no_other() -> None:
    class Somewhere:
        replica = "here"

    found = list(_routes([mount(cast("Desk", Somewhere()), TOKENS)]))
    assert sorted(found) == sorted((each.method, each.path) for each in (*LOOK, *FORMS, *OPEN, *API))


async def operations(connection: Connection) -> Any:
    """How many things were done."""
    return (await one(connection, "SELECT count(*) FROM outbox.operation"))[0]


@pytest.mark.parametrize("asked", API, ids=name)
async def test_the_api_answers_only_who_may(
    dashboard: Site, seeded: Seeded, connection: Connection, asked: Asked
) -> None:
    assert seeded
    got = {}
    callers = {"nobody": None, "wrong": "wrong-token-0123456789", "viewer": TOKENS["viewer"], "admin": TOKENS["admin"]}
    for who, token in callers.items():
        async with dashboard.program(token) as program:
            got[who] = (await program.request(asked.method, asked.example)).status_code
        if who != "admin":
            assert await operations(connection) == 0
    allowed = SAID.get(asked.path, 200)
    viewer = 403 if asked.changes else allowed
    assert got == {"nobody": 401, "wrong": 401, "viewer": viewer, "admin": allowed}


async def test_the_api_takes_no_cookie_and_the_pages_no_token(dashboard: Site, admin: httpx.AsyncClient) -> None:
    assert (await admin.get("/admin/api/v1/status")).status_code == 401
    async with dashboard.program(TOKENS["admin"]) as program:
        assert (await program.get("/admin/")).status_code == 303


@pytest.mark.parametrize("asked", [*LOOK, *FORMS], ids=name)
async def test_a_page_is_for_those_who_have_logged_in_and_a_change_for_administrators(
    anybody: httpx.AsyncClient, viewer: httpx.AsyncClient, admin: httpx.AsyncClient, seeded: Seeded,
    connection: Connection, asked: Asked,
) -> None:  # fmt: skip
    assert seeded
    for stranger in (anybody, viewer):
        data = {"form_token": form_token(await viewer.get("/admin/")), "ids": "1", "why": "test"}
        answer = await stranger.request(asked.method, asked.example, data=data if asked.method == "POST" else None)
        if stranger is anybody:
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/admin/login")
        else:
            assert answer.status_code == (403 if asked.changes else 303 if "?q=" in asked.example else 200)
    assert await operations(connection) == 0
    data = {"form_token": form_token(await admin.get("/admin/")), "why": "test", "ids": "1"}
    answer = await admin.request(asked.method, asked.example, data=data if asked.method == "POST" else None)
    assert answer.status_code in {200, 303}
    assert await operations(connection) == (1 if asked in FORMS else 0)


@pytest.mark.parametrize("asked", [*FORMS, *OPEN[1:3]], ids=name)
async def test_a_form_from_elsewhere_changes_nothing(
    dashboard: Site, admin: httpx.AsyncClient, viewer: httpx.AsyncClient, seeded: Seeded, connection: Connection,
    asked: Asked,
) -> None:  # fmt: skip
    assert seeded
    ours, theirs = form_token(await admin.get("/admin/")), form_token(await viewer.get("/admin/"))
    evil = dashboard.origin.replace("127.0.0.1", "evil.example")
    for token, origin in (("", dashboard.origin), (theirs, dashboard.origin), (ours, ""), (ours, evil), (ours, "null")):
        data = {"form_token": token, "ids": "1", "why": "test", "token": TOKENS["admin"]}
        answer = await admin.post(asked.example, data=data, headers={"Origin": origin})
        assert (answer.status_code, token, origin) == (403, token, origin)
    assert await operations(connection) == 0
    assert (await admin.get("/admin/")).status_code == 200


async def test_every_answer_forbids_what_a_page_does_not_need(
    dashboard: Site, admin: httpx.AsyncClient, seeded: Seeded
) -> None:
    assert seeded
    async with dashboard.program(TOKENS["admin"]) as program:
        for asked in (*LOOK, *OPEN, *API, Asked("GET", "/admin/nothing", "/admin/nothing")):
            answer = await (program if asked in API else admin).request(asked.method, asked.example)
            forbids(answer)


def forbids(answer: httpx.Response) -> None:
    """The headers of an answer."""
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
