"""A collector on a real socket: takes OTLP over HTTP, and keeps the spans."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Link:
    """The context that a span is linked to."""

    trace_id: str
    span_id: str
    tracestate: str


@dataclass(frozen=True)
class Span:
    """One span as it arrived; ids in hex, `parent` empty for a root, times in nanoseconds since 1970."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str
    began_ns: int
    ended_ns: int
    failed: bool
    why: str
    attributes: Attributes
    links: list[Link]
    resource: Attributes

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        return int(self.attributes["outbox.attempt"])


@dataclass
class Collector:
    """An HTTP server on 127.0.0.1 as an async context manager. While `hangs` it takes requests and does not answer."""

    hangs: bool = False
    status: int = 200
    port: int = 0
    spans: list[Span] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition, repr=False)
    _runner: web.AppRunner | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Span]:
        """The spans of this name, by the time they began."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.began_ns)

    async def wait_until(self, enough: Callable[[], bool]) -> None:
        """Wait (30 s at most) until what has arrived is enough."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(enough)

    async def _take(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.copy())
        export = ExportTraceServiceRequest.FromString(await request.read())
        if self.hangs:
            await self._notify()
            await asyncio.Event().wait()
        if self.status == 200:
            for each in export.resource_spans:
                resource = _attributes(each.resource.attributes)
                self.spans += [_span(sent, resource) for scope in each.scope_spans for sent in scope.spans]
        await self._notify()
        return web.Response(status=self.status)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()


def _span(sent: Sent, resource: Attributes) -> Span:
    return Span(
        name=sent.name,
        kind=Sent.SpanKind.Name(sent.kind).removeprefix("SPAN_KIND_"),
        trace_id=sent.trace_id.hex(),
        span_id=sent.span_id.hex(),
        parent=sent.parent_span_id.hex(),
        began_ns=sent.start_time_unix_nano,
        ended_ns=sent.end_time_unix_nano,
        failed=sent.status.code == Status.STATUS_CODE_ERROR,
        why=sent.status.message,
        attributes=_attributes(sent.attributes),
        links=[Link(link.trace_id.hex(), link.span_id.hex(), link.trace_state) for link in sent.links],
        resource=resource,
    )


def _attributes(pairs: "list[KeyValue] | Any") -> Attributes:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}
