"""Every route of the dashboard and of its API by the OpenAPI document and beyond it: an answer, and never a 5xx."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import psycopg
from hypothesis import given
from hypothesis import strategies as st

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from relay.web.admin.api import document
from tests.fuzz.case import Check, came_to, texts
from tests.web.seed import seed
from tests.web.site import TOKENS, Site, form_token, log_in, site

_DOCUMENT = document()
_numbers = st.integers(-1, 130) | st.integers() | st.sampled_from([2**63 - 1, 2**63])
_whole = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, st.floats(allow_nan=False), texts),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
_object = st.fixed_dictionaries(
    {},
    optional={
        "ids": st.lists(_numbers, max_size=4) | _whole,
        "dry_run": st.booleans() | _whole,
        "force": st.booleans() | _whole,
        "delivered": st.booleans() | _whole,
        "why": texts | _whole,
        "by": texts | _whole,
    },
)
_content = st.one_of(
    _object.map(lambda given: json.dumps(given).encode()),
    _object.map(lambda given: json.dumps(given).encode()),
    st.dictionaries(texts, _whole, max_size=2).map(lambda given: json.dumps(given).encode()),
    st.binary(max_size=40),
    st.sampled_from([b"", b"[" * 50_000, b"x" * 70_000, b'{"ids": [1' + b"0" * 5000 + b"]}", b'{"ids": [1e999]}']),
)
_asked = st.dictionaries(
    st.sampled_from(
        ["destination", "topic", "entity", "since", "until", "error", "limit", "after", "key", "q", "next", "id"]
    ),
    texts | _numbers.map(str) | st.from_regex(r"[0-9]{1,6}[smhd]|[0-9T:-]{8,20}Z?", fullmatch=True),
    max_size=3,
)  # fmt: skip
_PAGES = ["/", "/login", "/dead", "/jobs", "/operations", "/dead/redrive", "/dead/discard", "/static/app.css"]
_PAGES += ["/jobs/{id}", "/jobs/{id}/cancel", "/destinations/{name}", "/static/{name}", "/{name}"]
_FORMS = ["/dead/redrive", "/dead/discard", "/jobs/{id}/cancel", "/destinations/{name}/pause", "/logout"]
_ROUTES = [
    *((method.upper(), f"/admin/api{path}") for path, methods in _DOCUMENT["paths"].items() for method in methods),
    *(("GET", f"/admin{path}") for path in _PAGES),
    *(("POST", f"/admin{path}") for path in _FORMS),
]
_headers = st.dictionaries(
    st.sampled_from(["Cookie", "Origin", "Content-Type", "X-Forwarded-Proto", "Accept", "Sec-Fetch-Site", "Range"]),
    st.binary(max_size=20).map(lambda value: bytes(byte for byte in value if byte > 31 and byte != 127).strip()),
    max_size=1,
)
# A path with a line break is nobody's: it does not come to the dashboard, and the server answers 404 in its own words.
_places = st.one_of(_numbers.map(str), st.sampled_from(["billing", "search", "nobody"]), texts).filter(
    lambda place: "\n" not in place
)


@contextmanager
def opened() -> Iterator[Check]:
    """The site over a seeded outbox, and an administrator's browser and program."""
    with Nest() as nest, Postgres(nest, tcp=True, options={"fsync": "off"}) as postgres, asyncio.Runner() as runner:
        dsn = postgres.create_database("fuzz")
        runner.run(migrate(dsn))
        context = site(dsn)
        found = runner.run(context.__aenter__())
        program, browser, token = runner.run(_clients(found, dsn))

        @given(st.sampled_from(_ROUTES), _places, _asked, _content, _headers)
        def check(
            route: tuple[str, str], place: str, asked: dict[str, str], content: bytes, headers: dict[str, bytes]
        ) -> None:
            method, pattern = route
            path = pattern.replace("{id}", _quoted(place)).replace("{name}", _quoted(place))
            client = program if "/api/" in path else browser
            query = urlencode(asked, errors="replace")
            if method == "POST" and client is browser:
                content = urlencode({**asked, "ids": place, "form_token": token}, errors="replace").encode()
            request = client.build_request(method, f"{path}?{query}", content=content, headers=headers)  # type: ignore[arg-type]
            answer = runner.run(client.send(request))
            came_to(f"answered {answer.status_code // 100}xx")
            _well(answer)

        yield check
        runner.run(_end(program, browser))
        runner.run(context.__aexit__(None, None, None))


async def _clients(found: Site, dsn: str) -> tuple[httpx.AsyncClient, httpx.AsyncClient, str]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await seed(connection)
    browser = found.browser()
    await log_in(browser, TOKENS["admin"], name="Ada")
    return found.program(TOKENS["admin"]), browser, form_token(await browser.get("/admin/"))


async def _end(*clients: httpx.AsyncClient) -> None:
    for client in clients:
        await client.aclose()


def _quoted(place: str) -> str:
    return quote(place.encode("utf-8", "replace"), safe="") or "%20"


def _well(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    assert not any(token in answer.text for token in TOKENS.values())
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.headers.get("content-type") == "application/json":
        said: Mapping[str, Any] = answer.json()
        assert answer.status_code == 200 or (said.keys() == {"error"} and said["error"])
