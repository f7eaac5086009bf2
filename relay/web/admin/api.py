"""The JSON API: what the pages show and do, for programs. Described by openapi.yaml."""

import dataclasses
import json
import re
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, TypeVar, cast

from ruamel.yaml import YAML
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from relay.model import Role
from relay.web.admin.access import actor
from relay.web.admin.asked import as_place, number, place, selection, text, texts
from relay.web.admin.desk import MOST_AT_ONCE, Desk
from relay.web.admin.guard import Guard, body

T = TypeVar("T")

# Most dead letters of one answer.
_LETTERS = 100
_NAME = re.compile(r"[^\x00-\x1f\x7f]{0,80}")
# What PostgreSQL can keep: no NUL, and no surrogate.
_TEXT = re.compile(r"[^\0\ud800-\udfff]{0,1000}", re.DOTALL)


class Answer(JSONResponse):
    """A dataclass, or what JSON has itself; times are ISO 8601 in UTC."""

    def render(self, content: Any) -> bytes:
        """As starlette has it."""
        plain = dataclasses.asdict(content) if dataclasses.is_dataclass(content) else content  # type: ignore[arg-type]
        return json.dumps(plain, default=_plain, ensure_ascii=False).encode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def explain(_: Request, status: int, sentence: str) -> Response:
    """A refusal or a fault."""
    return Answer({"error": sentence}, status)


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    text = (files("relay.web.admin") / "openapi.yaml").read_text("utf-8")
    return cast("dict[str, Any]", YAML(typ="safe", pure=True).load(text))


def routes(desk: Desk, guard: Guard) -> list[Route]:
    """Every route of the API, below /admin/api."""
    api = Api(desk)
    reads = {
        "/openapi.json": api.openapi,
        "/v1/status": api.status,
        "/v1/traffic": api.traffic,
        "/v1/dead": api.dead,
        "/v1/jobs": api.find,
        "/v1/jobs/{id}": api.job,
        "/v1/operations": api.operations,
    }
    changes = {
        "/v1/dead/redrive": api.redrive,
        "/v1/dead/discard": api.discard,
        "/v1/jobs/{id}/cancel": api.cancel,
        "/v1/destinations/{name}/pause": api.pause,
        "/v1/destinations/{name}/resume": api.resume,
    }
    return [
        *(Route(path, guard.api(handler, "viewer"), methods=["GET"]) for path, handler in reads.items()),
        *(Route(path, guard.api(handler, "admin"), methods=["POST"]) for path, handler in changes.items()),
    ]


class Api:
    """One method a route; each gets the role of the token that was sent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._document = document()

    async def openapi(self, _: Request, __: Role) -> Response:
        """This API's description."""
        return Answer(self._document)

    async def status(self, _: Request, __: Role) -> Response:
        """Everything at a glance."""
        return Answer(await self._desk.overview())

    async def traffic(self, request: Request, _: Role) -> Response:
        """This replica's attempts of the last hour."""
        hour = self._desk.hour(text(request.query_params, "destination"))
        return Answer({"replica": self._desk.replica, "minutes": hour})

    async def dead(self, request: Request, _: Role) -> Response:
        """Some dead letters, and where to go on."""
        most = number(request.query_params.get("limit", "50"), "limit", _LETTERS)
        found = await self._desk.letters(
            selection(texts(request.query_params)), after=place(request.query_params), most=most
        )
        return Answer({"letters": found.letters, "after": as_place(found.after)})

    async def find(self, request: Request, _: Role) -> Response:
        """The jobs with an idempotency key."""
        key = text(request.query_params, "key")
        if key is None:
            raise HTTPException(400, "say which: ?key=IDEMPOTENCY_KEY")
        return Answer({"jobs": await self._desk.find(key)})

    async def job(self, request: Request, _: Role) -> Response:
        """One job."""
        return Answer(await self._desk.job(number(request.path_params["id"], "id")))

    async def operations(self, request: Request, _: Role) -> Response:
        """What people did."""
        return Answer({"operations": await self._desk.operations(text(request.query_params, "destination"))})

    async def redrive(self, request: Request, role: Role) -> Response:
        """Another chance."""
        given = await _given(request)
        report = await self._desk.act(
            "redrive",
            _ids(given),
            actor=_actor(given, role),
            dry_run=_field(given, "dry_run", default=False),
            why=_why(given),
            force=_field(given, "force", default=False),
            delivered=_field(given, "delivered", default=False),
        )
        return Answer(report)

    async def discard(self, request: Request, role: Role) -> Response:
        """An end."""
        given = await _given(request)
        report = await self._desk.act(
            "discard",
            _ids(given),
            actor=_actor(given, role),
            dry_run=_field(given, "dry_run", default=False),
            why=_why(given),
        )
        return Answer(report)

    async def cancel(self, request: Request, role: Role) -> Response:
        """An end for one job that waits."""
        given = await _given(request)
        job_id = number(request.path_params["id"], "id")
        return Answer(await self._desk.cancel(job_id, actor=_actor(given, role), why=_why(given)))

    async def pause(self, request: Request, role: Role) -> Response:
        """No more requests to a destination."""
        given = await _given(request)
        name = request.path_params["name"]
        changed = await self._desk.pause(name, actor=_actor(given, role), why=_why(given) or "paused by an operator")
        return Answer({"destination": name, "paused": True, "changed": changed})

    async def resume(self, request: Request, role: Role) -> Response:
        """Requests again."""
        given = await _given(request)
        name = request.path_params["name"]
        changed = await self._desk.resume(name, actor=_actor(given, role))
        return Answer({"destination": name, "paused": False, "changed": changed})


async def _given(request: Request) -> dict[str, Any]:
    """The JSON object that was sent; nothing is an empty one."""
    try:
        given = json.loads(await body(request) or b"{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPException(400, "the body is not a JSON object")
    if unknown := sorted(given.keys() - {"ids", "dry_run", "force", "delivered", "why", "by"}):
        raise HTTPException(400, f"unknown: {', '.join(unknown)}")
    return given


def _field(given: dict[str, Any], name: str, *, default: T) -> T:
    value = given.get(name, default)
    if type(value) is not type(default):
        raise HTTPException(400, f"{name}: expected {'true or false' if isinstance(default, bool) else 'text'}")
    if isinstance(value, str) and not _TEXT.fullmatch(value):
        raise HTTPException(400, f"{name}: expected up to 1,000 characters, without a NUL or half a character")
    return value


def _ids(given: dict[str, Any]) -> list[int]:
    ids = given.get("ids")
    if not isinstance(ids, list) or not 1 <= len(ids) <= MOST_AT_ONCE:
        raise HTTPException(400, f"ids: expected a list of 1 to {MOST_AT_ONCE} ids")
    return [number(str(each), "ids") for each in ids]


def _why(given: dict[str, Any]) -> str | None:
    return _field(given, "why", default="").strip() or None


def _actor(given: dict[str, Any], role: Role) -> str:
    name = _field(given, "by", default="").strip()
    if not _NAME.fullmatch(name):
        raise HTTPException(400, "by: expected up to 80 characters on one line")
    return actor(role, name)
