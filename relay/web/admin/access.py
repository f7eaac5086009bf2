"""Who may do what: two tokens, sessions that every replica with the same tokens accepts, and a bound on guesses.

A session is its cookie: role, name, expiry and a random number, signed with a key that comes from the tokens. So no
replica keeps any, and a changed token ends all of them.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relay.model import Role

SESSION_S = 8 * 3600
# Wrong tokens that one address may try within a minute, and how many addresses are remembered.
GUESSES = 10
GUESSES_S = 60.0
_ADDRESSES = 1_000


@dataclass(frozen=True, slots=True)
class Session:
    """A browser's. `role` is None before the login; `name` is what a person says who they are."""

    role: Role | None
    name: str
    expires_s: int
    nonce: str

    @property
    def actor(self) -> str:
        """Who is to be named for what is done."""
        return actor(self.role, self.name)


def actor(role: Role | None, name: str) -> str:
    """The name that a person gave, which nobody checks, and the token that they had."""
    return f"{name} ({role} token)" if name else f"{role} token"


def may(role: Role | None, wanted: Role) -> bool:
    """Whether a role includes another: an administrator may see what a viewer sees."""
    return role in ("admin", wanted)


class Access:
    """`tokens` by role; at least one. `now_s` is the epoch's seconds: expiry must mean the same on every replica."""

    def __init__(self, tokens: Mapping[Role, str], now_s: Callable[[], float] = time.time) -> None:
        self._tokens = {role: token.encode() for role, token in tokens.items()}
        text = json.dumps(sorted(tokens.items())).encode()
        self._key = hmac.digest(text, b"outbox-relay session", hashlib.sha256)
        self._now_s = now_s

    def role(self, token: str) -> Role | None:
        """Whose token this is. Compares with each of them in constant time, whichever fits."""
        offered = token.encode()
        found = [role for role, known in self._tokens.items() if hmac.compare_digest(offered, known)]
        return found[0] if found else None

    def start(self, role: Role | None, name: str = "") -> tuple[Session, str]:
        """A new session and its cookie; the random number is new at every login."""
        session = Session(role, name, int(self._now_s()) + SESSION_S, secrets.token_urlsafe(16))
        content = json.dumps([session.role, session.name, session.expires_s, session.nonce]).encode()
        return session, f"{_text(content)}.{_text(self._sign(b'cookie', content))}"

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie; None when it is not ours, or is over."""
        content, signature = (_bytes(part) for part in (*cookie.split("."), "", "")[:2])
        if not hmac.compare_digest(self._sign(b"cookie", content), signature):
            return None
        session = Session(*json.loads(content))
        return session if session.expires_s > self._now_s() else None

    def form_token(self, session: Session) -> str:
        """What every form of this session carries; another site can neither read nor compute it."""
        return _text(self._sign(b"form", session.nonce.encode()))

    def form_is_ours(self, session: Session, token: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode())

    def _sign(self, purpose: bytes, content: bytes) -> bytes:
        return hmac.digest(self._key, purpose + b"\0" + content, hashlib.sha256)


class Guesses:
    """Wrong tokens of each address in the current minute. Of this replica; a proxy in front is one address."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._wrong: dict[str, tuple[float, int]] = {}

    def wait_s(self, address: str) -> float:
        """How long this address has to wait before its next token is looked at; 0 when it need not."""
        since_s, wrong = self._wrong.get(address, (0.0, 0))
        left_s = since_s + GUESSES_S - self._clock_s()
        return left_s if wrong >= GUESSES and left_s > 0 else 0.0

    def wrong(self, address: str) -> None:
        """A token of this address was wrong."""
        now_s = self._clock_s()
        since_s, wrong = self._wrong.pop(address, (now_s, 0))
        if now_s - since_s >= GUESSES_S:
            since_s, wrong = now_s, 0
        while len(self._wrong) >= _ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[address] = since_s, wrong + 1


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        return b""
