"""Lets a request through to its handler, or says why not; every answer leaves with the headers that keep it safe."""

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import psycopg
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relay.database import UNAVAILABLE
from relay.errors import RelayError
from relay.model import Role
from relay.telemetry import event
from relay.web.admin.access import Access, Guesses, Session, may

BASE = "/admin"
COOKIE = "relay_session"
FORM_TOKEN = "form_token"  # noqa: S105 - the name of a field
_LARGEST_BODY = 65_536
_MOST_FIELDS = 100

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer` a browser sends forms with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

# Whoever follows a link from a chat or an alert comes without the cookie, which is SameSite=Strict; a reload brings it.
_AGAIN = '<!doctype html><html lang="en"><meta http-equiv="refresh" content="0"><title>Relay</title><p>One moment…'

Endpoint = Callable[[Request], Awaitable[Response]]
PageHandler = Callable[[Request, Session], Awaitable[Response]]
ApiHandler = Callable[[Request, Role], Awaitable[Response]]
Explain = Callable[[Request, int, str], Response]


class SafeHeaders:
    """Adds the headers to every answer of an application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sent)


class Guard:
    """Wraps handlers. `explain` turns a status and a sentence into an answer, as a page or as JSON."""

    def __init__(self, access: Access, explain: Explain, guesses: Guesses) -> None:
        self.access = access
        self._guesses = guesses
        self._explain = explain

    def page(self, handler: PageHandler, role: Role = "viewer") -> Endpoint:
        """A page for whoever has logged in with this role; others are sent to the login."""

        async def answer(request: Request) -> Response:
            session = self.session(request)
            if session is None and request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
                return HTMLResponse(_AGAIN)
            if session is None or session.role is None:
                here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                wanted = {"next": here} if request.method == "GET" else {}
                return RedirectResponse(f"{BASE}/login?{urlencode(wanted)}".rstrip("?"), 303)
            if not may(session.role, role):
                raise HTTPException(403, "the viewer token may look, and change nothing")
            return await handler(request, session)

        return self._answered(answer)

    def open_page(self, handler: Endpoint) -> Endpoint:
        """A page for everybody."""
        return self._answered(handler)

    def api(self, handler: ApiHandler, role: Role) -> Endpoint:
        """An answer for whoever sends a token of this role as `Authorization: Bearer`."""

        async def answer(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer":
                raise HTTPException(401, "send Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
            found = self.role(request, token.strip())
            if found is None:
                raise HTTPException(401, "this is not a token of this relay", {"WWW-Authenticate": "Bearer"})
            if not may(found, role):
                raise HTTPException(403, "the viewer token may look, and change nothing")
            return await handler(request, found)

        return self._answered(answer)

    def role(self, request: Request, token: str) -> Role | None:
        """Whose token this is. Raises HTTPException 429, without a look, after too many wrong ones."""
        address = request.client.host if request.client else ""
        if wait_s := self._guesses.wait_s(address):
            raise HTTPException(
                429, "too many wrong tokens from this address; wait a minute", {"Retry-After": f"{wait_s + 1:.0f}"}
            )
        found = self.access.role(token)
        if found is None:
            self._guesses.wrong(address)
            event(logging.WARNING, "wrong_token", address=address)
        return found

    def session(self, request: Request) -> Session | None:
        """The browser's session, logged in or not."""
        return self.access.session(request.cookies.get(COOKIE, ""))

    async def form(self, request: Request, session: Session | None) -> dict[str, str]:
        """The fields of a form that one of this session's own pages sent, else HTTPException 403."""
        origin = urlsplit(request.headers.get("origin", "")).netloc
        if not origin or origin != request.headers.get("host"):
            raise HTTPException(403, "this form was sent from another site")
        sent = (await body(request)).decode("utf-8", "replace")
        try:
            fields = parse_qs(sent, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise HTTPException(400, f"more than {_MOST_FIELDS} fields") from None
        given = {name: values[-1].replace("\0", "").strip() for name, values in fields.items()}
        if session is None or not self.access.form_is_ours(session, given.pop(FORM_TOKEN, "")):
            raise HTTPException(403, "this form is too old; go back, reload the page and try again")
        return given

    def _answered(self, handler: Endpoint) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request)
            except HTTPException as refusal:
                return self.refuse(request, refusal)
            except RelayError as error:
                return self._explain(request, 409, str(error))
            except (psycopg.Error, *UNAVAILABLE) as error:
                text = " ".join(str(error).split())
                return self._explain(request, 503, f"the database cannot be used: {text}")
            except Exception as bug:  # noqa: BLE001 - it costs this answer, not the replica
                event(logging.ERROR, "page_crashed", path=request.url.path, fault=bug)
                return self._explain(request, 500, f"{type(bug).__name__} in the relay; its log has the traceback")

        return endpoint

    def refuse(self, request: Request, refusal: HTTPException) -> Response:
        """The answer for an HTTPException."""
        answer = self._explain(request, refusal.status_code, refusal.detail)
        answer.headers.update(refusal.headers or {})
        return answer


async def body(request: Request) -> bytes:
    """What the client sent, else HTTPException 413 beyond 64 KiB."""
    data = b""
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > _LARGEST_BODY:
                raise HTTPException(413, f"more than {_LARGEST_BODY} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the connection ended before the body did") from None
    return data


def secure(request: Request) -> bool:
    """Whether the browser came by https, to us or to the proxy in front of us."""
    schemes = (
        request.url.scheme,
        request.headers.get("x-forwarded-proto", ""),
        urlsplit(request.headers.get("origin", "")).scheme,
    )
    return "https" in schemes
