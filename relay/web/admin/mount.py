"""The dashboard and its API as one mount for the replica's server."""

from collections.abc import Mapping
from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from relay.model import Role
from relay.web.admin import api, login, pages
from relay.web.admin.access import Access, Guesses
from relay.web.admin.desk import Desk
from relay.web.admin.guard import BASE, Guard, SafeHeaders
from relay.web.admin.views import Views


def mount(desk: Desk, tokens: Mapping[Role, str]) -> Mount:
    """Everything below /admin, for those who have one of `tokens` (by role, at least one)."""
    access = Access(tokens)
    views = Views(access, desk.replica)
    guesses = Guesses()
    guard = Guard(access, views.explain, guesses)
    api_guard = Guard(access, api.explain, guesses)

    async def refused(request: Request, refusal: Exception) -> Response:
        side = api_guard if request.url.path.startswith(f"{BASE}/api/") else guard
        return side.refuse(request, cast("HTTPException", refusal))

    application = Starlette(
        routes=[
            Mount("/static", StaticFiles(packages=[("relay.web.admin", "static")])),
            Mount("/api", routes=api.routes(desk, api_guard)),
            *login.routes(guard, views),
            *pages.routes(desk, guard, views),
        ],
        middleware=[Middleware(SafeHeaders)],
        exception_handlers={HTTPException: refused},
    )
    return Mount(BASE, application)
