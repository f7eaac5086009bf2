"""The dashboard and API on a real socket, in the tests' own loop, against the tests' database."""

import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx

from relay.database import Database
from relay.model import Role
from relay.telemetry.tally import Tally
from relay.web.admin.desk import Desk
from relay.web.admin.guard import FORM_TOKEN
from relay.web.admin.mount import mount
from relay.web.admin.traffic import Traffic
from relay.web.server import build, serve

TOKENS: dict[Role, str] = {"admin": "admin-token-0123456789", "viewer": "viewer-token-0123456789"}


@dataclass
class Site:
    """Where it is, and what the replica behind it would know by itself."""

    origin: str = ""
    breakers: dict[str, str] = field(default_factory=lambda: {"billing": "open", "search": "closed"})
    tally: Tally = field(default_factory=lambda: Tally(["billing", "search"]))

    def __post_init__(self) -> None:
        """Traffic begins with the replica."""
        self.traffic = Traffic(self.tally)

    def remember(self) -> None:
        """An hour of attempts, with ten bad minutes in it."""
        rng = random.Random(7)
        for minute in range(60):
            bad = 38 <= minute < 48
            for number in range(rng.randrange(70, 110)):
                counts = self.tally.of["billing" if number % 3 else "search"]
                counts.attempt_s.add(rng.lognormvariate(-3.2, 0.5) * (8 if bad else 1))
                if rng.random() > (0.7 if bad else 0.01):
                    counts.delivered += 1
                else:
                    counts.failed["status"] += 1
            if minute < 59:
                self.traffic.turn()

    def browser(self) -> httpx.AsyncClient:
        """Somebody with cookies, who sends the Origin that a browser sends."""
        return httpx.AsyncClient(base_url=self.origin, headers={"Origin": self.origin})

    def program(self, token: str | None) -> httpx.AsyncClient:
        """Somebody with a bearer token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.origin, headers=headers)


@contextlib.asynccontextmanager
async def site(dsn: str) -> AsyncIterator[Site]:
    """A site for as long as the context is open."""
    found = Site()
    async with Database(dsn, name="relay web", pool_size=2) as connections:
        desk = Desk(
            connections,
            replica="relay-0-5e1f00d5",
            budgets={"billing": 3, "search": 3},
            breakers=lambda: found.breakers,
            traffic=found.traffic,
        )
        async with serve(build([mount(desk, TOKENS)]), host="127.0.0.1", port=0) as port:
            found.origin = f"http://127.0.0.1:{port}"
            yield found


def form_token(page: httpx.Response) -> str:
    """The token that the forms of a page carry."""
    return page.text.split(f'name="{FORM_TOKEN}" value="')[1].split('"')[0]


async def log_in(browser: httpx.AsyncClient, token: str, *, name: str = "", wanted: str = "") -> httpx.Response:
    """Send the login form; the answer, redirects not followed."""
    shown = await browser.get("/admin/login", params={"next": wanted})
    fields = {FORM_TOKEN: form_token(shown), "token": token, "name": name, "next": wanted}
    return await browser.post("/admin/login", data=fields)
