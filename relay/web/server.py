"""The replica's HTTP server, in the replica's own event loop.

What it answers is a list of routes. Another set of pages is mounted by adding to that list in `relay.service`:

    build([*health.routes(pulse), *metrics.routes(scrape), Mount("/admin", routes=[...])])

A route's handler shares the loop with deliveries: it awaits, and never computes for long.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from relay.errors import ConfigError

# What a client may still take to read its answer when the replica ends.
_LAST_ANSWERS_S = 1


def build(routes: Sequence[BaseRoute]) -> Starlette:
    """The application that answers these routes, and 404 to the rest."""
    return Starlette(routes=routes)


@contextlib.asynccontextmanager
async def serve(application: Starlette, *, host: str, port: int) -> AsyncIterator[int]:
    """Answers on `host` and `port` while the context is open; its value is the port, of the system's choice for 0.

    Raises ConfigError when nothing can listen there. Signals stay with whoever handles them.
    """
    listening = _listen(host, port)
    config = uvicorn.Config(
        application,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        http="h11",  # httptools, where it is installed, takes headers without end
        server_header=False,
        # Anybody may write who they are forwarded for; an address is that of the connection.
        proxy_headers=False,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve([listening]), name="web")
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await task


def _listen(host: str, port: int) -> socket.socket:
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # `::` is for IPv4 too, as on a dual-stack cluster.
        both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address[:2], family=family, dualstack_ipv6=both)
    except OSError as error:
        # What create_server makes of the reason names the address once more.
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ConfigError(
            f"web.host, web.port: cannot listen on {host}:{port}: {why}; choose another port, or 0 for no server"
        ) from error


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The replica stops in two phases of its own, and this server after them."""
        yield
