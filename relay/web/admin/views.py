"""Values to HTML: jinja2 with everything escaped, and the words that templates need."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from relay import __version__
from relay.rules.why import duration, instant
from relay.web.admin import chart
from relay.web.admin.access import Access, Session, may
from relay.web.admin.desk import BEHIND_CAP, MOST_AT_ONCE, REACH
from relay.web.admin.guard import BASE, COOKIE, FORM_TOKEN

_TITLES = {401: "Log in", 403: "Not allowed", 404: "Not found", 409: "Refused", 429: "Wait", 503: "No database"}


class Views:
    """Renders templates; `here` is the name of this replica."""

    def __init__(self, access: Access, here: str) -> None:
        self._access = access
        self._templates = Environment(
            loader=PackageLoader("relay.web.admin"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(instant=_instant, duration=_duration, count=_count, trace_id=_trace_id)
        self._templates.globals.update(
            base=BASE, here=here, version=__version__, form_token_name=FORM_TOKEN, behind_cap=BEHIND_CAP,
            reach=REACH, most_at_once=MOST_AT_ONCE, chart=chart,
        )  # fmt: skip

    def page(self, session: Session | None, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A whole page. Buttons that change something are for administrators only."""
        known = {
            "session": session,
            "may_change": session is not None and may(session.role, "admin"),
            "form_token": self._access.form_token(session) if session else "",
        }
        return HTMLResponse(self._templates.get_template(template).render(**known, **values), status)

    def explain(self, request: Request, status: int, sentence: str) -> Response:
        """A refusal or a fault, as a page."""
        session = self._access.session(request.cookies.get(COOKIE, ""))
        title = _TITLES.get(status, "Not understood" if status < 500 else "A fault")
        return self.page(session, "message.html", status, title=title, sentence=sentence)


def _instant(at: datetime | None) -> str:
    return "–" if at is None else instant(at)


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:.0f} ms" if 0 < seconds < 1 else duration(seconds)


def _count(number: int | None, cap: int) -> str:
    return "–" if number is None else f"{number:,}+" if number >= cap else f"{number:,}"


def _trace_id(traceparent: str | None) -> str | None:
    """W3C Trace Context: version-traceid-parentid-flags."""
    parts = (traceparent or "").split("-")
    return parts[1] if len(parts) >= 4 else None


def report_text(report: Any) -> str:
    """What a redrive or discard did, or would do."""
    done = {"redrive": "redriven", "discard": "discarded"}[report.verb]
    text = f"{_plural(report.changed)} {'would be' if report.dry_run else _were(report.changed)} {done}"
    if report.destinations:
        text += f" ({_each(report.destinations)})"
    return text + (f", {report.marked} of them marked Relay-Redrive" if report.marked else "")


def _each(destinations: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {jobs}" for name, jobs in sorted(destinations.items()))


def _plural(jobs: int) -> str:
    return f"{jobs:,} job" + ("" if jobs == 1 else "s")


def _were(jobs: int) -> str:
    return "was" if jobs == 1 else "were"
