"""How a browser comes in and goes out: a token for a session."""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from relay.web.admin.access import SESSION_S
from relay.web.admin.guard import BASE, COOKIE, Guard, secure
from relay.web.admin.views import Views

_NAME_LENGTH = 80


def routes(guard: Guard, views: Views) -> list[Route]:
    """The pages that need no session."""
    login = Login(guard, views)
    return [
        Route("/login", guard.open_page(login.show), methods=["GET"]),
        Route("/login", guard.open_page(login.enter), methods=["POST"]),
        Route("/logout", guard.open_page(login.leave), methods=["POST"]),
    ]


class Login:
    """The form has a session too, one without a role: so it carries a form token like every other."""

    def __init__(self, guard: Guard, views: Views) -> None:
        self._guard = guard
        self._views = views

    async def show(self, request: Request) -> Response:
        """The form."""
        wanted = _ours(request.query_params.get("next", ""))
        session = self._guard.session(request)
        if session is not None and session.role is not None:
            return RedirectResponse(wanted, 303)
        session, cookie = self._guard.access.start(None)
        return _with(self._views.page(session, "login.html", wanted=wanted, fault=None), request, cookie)

    async def enter(self, request: Request) -> Response:
        """A new session for whoever has a token, so that what was known before the login is worth nothing after it."""
        before = self._guard.session(request)
        given = await self._guard.form(request, before)
        wanted = _ours(given.get("next", ""))
        role = self._guard.role(request, given.get("token", ""))
        if role is None:
            fault = "This is not a token of this relay."
            return self._views.page(before, "login.html", 403, wanted=wanted, fault=fault)
        words = " ".join(given.get("name", "").split())
        name = "".join(each for each in words if each.isprintable())[:_NAME_LENGTH]
        _, cookie = self._guard.access.start(role, name)
        return _with(RedirectResponse(wanted, 303), request, cookie)

    async def leave(self, request: Request) -> Response:
        """The end of this browser's session."""
        await self._guard.form(request, self._guard.session(request))
        answer = RedirectResponse(f"{BASE}/login", 303)
        answer.delete_cookie(COOKIE, path=BASE, httponly=True, samesite="strict", secure=secure(request))
        return answer


def _with(answer: Response, request: Request, cookie: str) -> Response:
    answer.set_cookie(
        COOKIE, cookie, max_age=SESSION_S, path=BASE, httponly=True, samesite="strict", secure=secure(request)
    )
    return answer


def _ours(wanted: str) -> str:
    """A path below /admin; a link that leads elsewhere leads to the overview."""
    parts = urlsplit(wanted)
    ours = not parts.scheme and not parts.netloc and parts.path.startswith(f"{BASE}/") and "\\" not in wanted
    return wanted if ours and wanted.isprintable() else f"{BASE}/"
