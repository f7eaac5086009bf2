"""The page that Prometheus scrapes."""

from collections.abc import Callable, Sequence

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def routes(text: Callable[[], bytes]) -> Sequence[Route]:
    """`/metrics`. `text` runs in a thread, so that no delivery waits for it; it asks the database nothing."""

    def scrape(_request: Request) -> Response:
        return Response(text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return [Route("/metrics", scrape)]
