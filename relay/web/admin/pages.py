"""The dashboard's pages. A change is a form: first what would happen, then the button that does it."""

from collections.abc import Sequence
from functools import partial
from typing import Literal
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from relay.web.admin.access import Session
from relay.web.admin.asked import as_place, number, place, selection, text, texts
from relay.web.admin.attention import attention
from relay.web.admin.desk import MOST_AT_ONCE, Desk
from relay.web.admin.guard import BASE, Guard, PageHandler
from relay.web.admin.views import Views, report_text

_SHOWN = 50
_SHOWN_BYTES = 65_536

Verb = Literal["redrive", "discard"]


def routes(desk: Desk, guard: Guard, views: Views) -> list[Route]:
    """Every page for those who have logged in, below /admin."""
    pages = Pages(desk, guard, views)
    looks = {
        "/": pages.overview,
        "/destinations/{name}": pages.destination,
        "/dead": pages.dead,
        "/jobs": pages.find,
        "/jobs/{id}": pages.job,
        "/operations": pages.operations,
    }
    asks: dict[str, PageHandler] = {
        "/dead/redrive": partial(pages.ask, "redrive"),
        "/dead/discard": partial(pages.ask, "discard"),
        "/jobs/{id}/cancel": pages.ask_cancel,
    }
    changes: dict[str, PageHandler] = {
        "/dead/redrive": partial(pages.act, "redrive"),
        "/dead/discard": partial(pages.act, "discard"),
        "/jobs/{id}/cancel": pages.cancel,
        "/destinations/{name}/pause": pages.pause,
        "/destinations/{name}/resume": pages.resume,
    }
    return [
        *(Route(path, guard.page(handler), methods=["GET"]) for path, handler in looks.items()),
        *(Route(path, guard.page(handler, "admin"), methods=["GET"]) for path, handler in asks.items()),
        *(Route(path, guard.page(handler, "admin"), methods=["POST"]) for path, handler in changes.items()),
    ]


class Pages:
    """One method a page."""

    def __init__(self, desk: Desk, guard: Guard, views: Views) -> None:
        self._desk = desk
        self._guard = guard
        self._views = views

    async def overview(self, _: Request, session: Session) -> Response:
        """What waits, runs, stands still and failed."""
        overview = await self._desk.overview()
        return self._views.page(
            session, "overview.html", overview=overview, remarks=attention(overview), hour=self._desk.hour()
        )

    async def destination(self, request: Request, session: Session) -> Response:
        """One destination, with pause and resume."""
        name = request.path_params["name"]
        overview = await self._desk.overview()
        found = [each for each in overview.destinations if each.status.name == name]
        if not found:
            raise HTTPException(404, f"there is no destination {name}, and no unfinished job for it")
        return self._views.page(
            session,
            "destination.html",
            each=found[0],
            cap=overview.cap,
            hour=self._desk.hour(name),
            operations=await self._desk.operations(name),
        )

    async def pause(self, request: Request, session: Session) -> Response:
        """Stops every replica from sending to a destination."""
        name = request.path_params["name"]
        given = await self._guard.form(request, session)
        await self._desk.pause(name, actor=session.actor, why=given.get("why") or "paused by an operator")
        return RedirectResponse(f"{BASE}/destinations/{name}", 303)

    async def resume(self, request: Request, session: Session) -> Response:
        """Lets every replica send to it again."""
        name = request.path_params["name"]
        await self._guard.form(request, session)
        await self._desk.resume(name, actor=session.actor)
        return RedirectResponse(f"{BASE}/destinations/{name}", 303)

    async def dead(self, request: Request, session: Session) -> Response:
        """Dead letters, searched and paged."""
        filters = texts(request.query_params)
        found = await self._desk.letters(selection(filters), after=place(request.query_params), most=_SHOWN)
        after = as_place(found.after)
        further = urlencode({**filters, "after": after}) if after else None
        return self._views.page(
            session, "dead.html", filters=filters, letters=found.letters, further=further, query=urlencode(filters)
        )

    async def ask(self, verb: Verb, request: Request, session: Session) -> Response:
        """What a redrive or a discard would do to the chosen jobs, or to those that fit; nothing is changed."""
        query = request.query_params
        delivered, more = query.get("delivered") == "1", False
        ids = [number(each, "id") for each in query.getlist("id")[: MOST_AT_ONCE + 1]]
        if query.get("all") == "1":
            ids, more = await self._desk.fitting(selection(texts(query)))
        if not ids and query.get("all") != "1":
            raise HTTPException(400, "no dead letter is chosen; go back and tick some")
        report = await self._desk.act(verb, ids, actor=session.actor, dry_run=True, delivered=delivered)
        return self._views.page(
            session,
            "ask.html",
            verb=verb,
            ids=ids,
            delivered=delivered,
            more=more,
            report=report,
            sentence=report_text(report),
        )

    async def act(self, verb: Verb, request: Request, session: Session) -> Response:
        """Redrives or discards, and says what happened."""
        given = await self._guard.form(request, session)
        report = await self._desk.act(
            verb,
            _ids(given.get("ids", "").split(",")),
            actor=session.actor,
            dry_run=False,
            why=given.get("why") or None,
            force=given.get("force") == "1",
            delivered=given.get("delivered") == "1",
        )
        return self._views.page(session, "done.html", report=report, sentence=report_text(report))

    async def find(self, request: Request, session: Session) -> Response:
        """The job with an id, or those with a key."""
        sought = text(request.query_params, "q")
        if sought is None:
            raise HTTPException(400, "which job? give its id, or its idempotency key")
        found = await self._desk.find(sought)
        if len(found) == 1:
            return RedirectResponse(f"{BASE}/jobs/{found[0].id}", 303)
        return self._views.page(session, "jobs.html", sought=sought, jobs=found)

    async def job(self, request: Request, session: Session) -> Response:
        """Everything about one job."""
        opened = await self._desk.job(number(request.path_params["id"], "id"))
        return self._views.page(session, "job.html", opened=opened, shown_bytes=_SHOWN_BYTES)

    async def ask_cancel(self, request: Request, session: Session) -> Response:
        """The job that would be discarded; nothing is changed."""
        opened = await self._desk.job(number(request.path_params["id"], "id"))
        return self._views.page(session, "cancel.html", shown=opened.shown)

    async def cancel(self, request: Request, session: Session) -> Response:
        """Discards one job that waits."""
        given = await self._guard.form(request, session)
        job_id = number(request.path_params["id"], "id")
        await self._desk.cancel(job_id, actor=session.actor, why=given.get("why") or None)
        return RedirectResponse(f"{BASE}/jobs/{job_id}", 303)

    async def operations(self, _: Request, session: Session) -> Response:
        """Who did what."""
        return self._views.page(session, "operations.html", operations=await self._desk.operations())


def _ids(texts: Sequence[str]) -> list[int]:
    if len(texts) > MOST_AT_ONCE:
        raise HTTPException(400, f"at most {MOST_AT_ONCE} jobs at once")
    return [number(each, "id") for each in texts]
