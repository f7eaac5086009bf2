"""The JSON API: as its document says, and as the dashboard does."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openapi_spec_validator import OpenAPIV31SpecValidator

from relay.web.admin.api import document
from tests.conftest import Connection
from tests.web.seed import MARKUP, Seeded, one
from tests.web.site import TOKENS, Site
from tests.web.test_authorisation import API

DOCUMENT = document()


@pytest.fixture
async def program(dashboard: Site) -> AsyncIterator[httpx.AsyncClient]:
    """A program with the admin token, whose every answer is held against the document."""

    async def hold(answer: httpx.Response) -> None:
        await answer.aread()
        path = answer.request.url.path.removeprefix("/admin/api")
        conforms(answer.request.method, path, answer.status_code, answer.json())

    async with dashboard.program(TOKENS["admin"]) as program:
        program.event_hooks["response"] = [hold]
        yield program


def conforms(method: str, path: str, status: int, content: Any) -> None:
    """Raise ValidationError unless the document describes this answer."""
    [template] = [each for each in DOCUMENT["paths"] if _fits(each, path)]
    operation = DOCUMENT["paths"][template][method.lower()]
    responses = operation["responses"]
    response = responses.get(str(status)) or DOCUMENT["components"]["responses"]["Refused"]
    schema = {**response["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(content)


def _fits(template: str, path: str) -> bool:
    ours, theirs = template.split("/"), path.split("/")
    return (
        len(ours) == len(theirs)
        and all(one == other or one.startswith("{") for one, other in zip(ours, theirs, strict=True))
        and (template == path or path not in DOCUMENT["paths"])
    )


def test_the_document_is_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_the_document_has_every_route_and_no_other() -> None:
    documented = {(method.upper(), f"/admin/api{path}") for path, item in DOCUMENT["paths"].items() for method in item}
    assert documented == {(each.method, each.path) for each in API}


async def test_every_answer_is_as_the_document_says(
    program: httpx.AsyncClient, seeded: Seeded, dashboard: Site
) -> None:
    dashboard.remember()
    ids = [*seeded.heads, *seeded.loose, seeded.overtaken, seeded.done, seeded.waits, seeded.binary, seeded.unrouted]
    asked: list[tuple[str, str, Any]] = [
        ("GET", "v1/status", None),
        ("GET", "v1/traffic", None),
        ("GET", "v1/traffic?destination=billing", None),
        ("GET", "v1/dead", None),
        ("GET", "v1/dead?limit=2", None),
        ("GET", "v1/jobs?key=dead-1", None),
        *(("GET", f"v1/jobs/{job_id}", None) for job_id in ids),
        ("POST", "v1/dead/redrive", {"ids": ids, "dry_run": True, "force": True, "delivered": True}),
        ("POST", "v1/dead/redrive", {"ids": ids[:1], "why": "it works", "by": "cron"}),
        ("POST", "v1/dead/discard", {"ids": ids[1:2]}),
        ("POST", f"v1/jobs/{seeded.unrouted}/cancel", {"why": "nobody wants it"}),
        ("POST", "v1/destinations/billing/pause", {"why": "test"}),
        ("POST", "v1/destinations/billing/pause", {}),
        ("POST", "v1/destinations/billing/resume", None),
        ("POST", "v1/destinations/billing/resume", None),
        ("GET", f"v1/jobs/{seeded.heads[0]}", None),
        ("GET", "v1/operations", None),
        ("GET", "v1/operations?destination=billing", None),
        ("GET", "openapi.json", None),
    ]
    for method, path, body in asked:
        answer = await program.request(method, f"/admin/api/{path}", json=body)
        assert (path, answer.status_code) == (path, 200), answer.text


REFUSED: list[tuple[str, str, Any, int]] = [
    ("GET", "v1/jobs/999999", None, 404),
    ("GET", "v1/jobs/abc", None, 400),
    ("GET", "v1/jobs/99999999999999999999", None, 400),
    ("GET", "v1/jobs", None, 400),
    ("GET", "v1/jobs?key=nothing", None, 409),
    ("GET", "v1/jobs?key=a%00b", None, 400),
    ("GET", "v1/dead?since=yesterday", None, 400),
    ("GET", "v1/dead?since=999999d", None, 400),
    ("GET", "v1/dead?error=%00", None, 400),
    ("GET", "v1/dead?limit=101", None, 400),
    ("GET", "v1/dead?limit=0", None, 400),
    ("GET", "v1/dead?after=billing", None, 400),
    ("POST", "v1/dead/redrive", "text", 400),
    ("POST", "v1/dead/redrive", {"ids": []}, 400),
    ("POST", "v1/dead/redrive", {"ids": [1.5]}, 400),
    ("POST", "v1/dead/redrive", {"ids": [True]}, 400),
    ("POST", "v1/dead/redrive", {"ids": list(range(1, 1002))}, 400),
    ("POST", "v1/dead/redrive", {"ids": [1], "dry_run": "yes"}, 400),
    ("POST", "v1/dead/redrive", {"ids": [1], "forse": True}, 400),
    ("POST", "v1/dead/discard", {"ids": [1], "why": "\0"}, 400),
    ("POST", "v1/dead/discard", {"ids": [1], "why": "\ud800"}, 400),
    ("POST", "v1/dead/discard", {"ids": [1], "by": "a\nb"}, 400),
    ("POST", "v1/dead/discard", {"ids": [1], "why": "x" * 70_000}, 413),
    ("POST", "v1/jobs/999999/cancel", {}, 409),
    ("POST", "v1/destinations/nowhere/pause", {}, 409),
    ("POST", "v1/destinations/no%00where/resume", {}, 409),
]


async def test_what_is_asked_wrongly_is_refused_in_a_sentence(program: httpx.AsyncClient) -> None:
    for method, path, body, status in REFUSED:
        # In ASCII: half a character cannot be sent otherwise.
        answer = await program.request(method, f"/admin/api/{path}", content=json.dumps(body))
        assert (path, body, answer.status_code) == (path, body, status), answer.text
        assert answer.json()["error"]


@pytest.mark.parametrize("body", [b"[" * 50_000, b'{"ids": ' + b"9" * 5_000 + b"}", b"\xff", b"[]"], ids=len)
async def test_what_is_no_json_object_is_refused_in_a_sentence(program: httpx.AsyncClient, body: bytes) -> None:
    answer = await program.post("/admin/api/v1/dead/redrive", content=body)
    assert (answer.status_code, answer.json()) == (400, {"error": "the body is not a JSON object"})


async def test_the_way_through_dead_letters_meets_each_once(program: httpx.AsyncClient, seeded: Seeded) -> None:
    found: list[int] = []
    after: str | None = ""
    while after is not None:
        page = (await program.get("/admin/api/v1/dead", params={"limit": 2, "after": after})).json()
        assert len(page["letters"]) <= 2
        found += [letter["id"] for letter in page["letters"]]
        after = page["after"]
    assert found == [*seeded.heads, *seeded.loose, seeded.overtaken]


async def test_the_filters_are_those_of_the_command(program: httpx.AsyncClient, seeded: Seeded) -> None:
    for query, wanted in {
        "destination=search": [seeded.overtaken],
        "topic=order.*&destination=billing": seeded.heads,
        "entity=order-2": [seeded.heads[1]],
        "since=10m": [seeded.heads[0]],
        "until=30m": [*seeded.loose, seeded.overtaken],
        "error=SERVICE": [*seeded.heads, *seeded.loose, seeded.overtaken],
        "error=404": [],
    }.items():
        page = (await program.get(f"/admin/api/v1/dead?{query}")).json()
        assert (query, [letter["id"] for letter in page["letters"]]) == (query, wanted)


async def test_a_payload_comes_as_text_or_else_in_base64(program: httpx.AsyncClient, seeded: Seeded) -> None:
    text = (await program.get(f"/admin/api/v1/jobs/{seeded.loose[0]}")).json()["shown"]["content"]
    assert (text["text"], text["base64"]) == (MARKUP, None)
    binary = (await program.get(f"/admin/api/v1/jobs/{seeded.binary}")).json()["shown"]["content"]
    assert (binary["text"], binary["base64"], binary["headers"]) == (None, "AP8Q", {"X-Label": "<b>bold</b>"})


async def test_a_change_is_kept_with_who_did_it(
    program: httpx.AsyncClient, seeded: Seeded, connection: Connection
) -> None:
    for by, actor in (("", "admin token"), ("cron", "cron (admin token)")):
        await program.post("/admin/api/v1/dead/discard", json={"ids": [seeded.loose[bool(by)]], "by": by, "why": "x"})
        last = "SELECT actor, verb, detail ->> 'why' FROM outbox.operation ORDER BY id DESC LIMIT 1"
        assert await one(connection, last) == (actor, "discard", "x")


async def test_a_delivered_job_is_sent_again_only_where_that_is_said(
    program: httpx.AsyncClient, seeded: Seeded, connection: Connection
) -> None:
    for delivered, status in ((False, "done"), (True, "pending")):
        body = {"ids": [seeded.done], "delivered": delivered}
        report = (await program.post("/admin/api/v1/dead/redrive", json=body)).json()
        assert (report["changed"], report["marked"]) == ((1, 1) if delivered else (0, 0))
        assert await one(connection, "SELECT status FROM outbox.job WHERE id = %s", seeded.done) == (status,)
