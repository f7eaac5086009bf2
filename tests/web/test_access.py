"""Tokens, sessions and guesses, by a clock of the test's own."""

import pytest

from relay.model import Role
from relay.web.admin.access import GUESSES, GUESSES_S, SESSION_S, Access, Guesses, may

TOKENS: dict[Role, str] = {"admin": "admin-token-0123456789", "viewer": "viewer-token-0123456789"}


class Clock:
    """A clock that stands until it is set."""

    now_s = 1_000_000.0

    def __call__(self) -> float:
        """As time.time and time.monotonic."""
        return self.now_s


def test_a_token_is_of_its_role_and_any_other_text_of_none() -> None:
    access = Access(TOKENS)
    assert [access.role(token) for token in (*TOKENS.values(), "", "admin-token-012345678", "ädmin")] == [
        "admin", "viewer", None, None, None,
    ]  # fmt: skip


def test_an_administrator_may_look_and_a_viewer_may_not_change() -> None:
    may_do = {(has, wants): may(has, wants) for has in ("admin", "viewer", None) for wants in ("admin", "viewer")}
    assert [pair for pair, allowed in may_do.items() if allowed] == [
        ("admin", "admin"), ("admin", "viewer"), ("viewer", "viewer"),
    ]  # fmt: skip


def test_every_replica_with_the_same_tokens_accepts_a_session() -> None:
    session, cookie = Access(TOKENS).start("admin", "Ada")
    assert Access(TOKENS).session(cookie) == session
    assert session.actor == "Ada (admin token)"


@pytest.mark.parametrize("changed", ["admin", "viewer"])
def test_a_changed_token_ends_every_session(changed: Role) -> None:
    _, cookie = Access(TOKENS).start("admin")
    assert Access({**TOKENS, changed: "another-token-0123456789"}).session(cookie) is None


def test_a_cookie_with_any_character_changed_is_no_session() -> None:
    access = Access(TOKENS)
    _, cookie = access.start("viewer", "Ada")
    # The last character of base64 may hold bits that mean nothing.
    for place in range(len(cookie) - 2):
        touched = cookie[:place] + ("A" if cookie[place] != "A" else "B") + cookie[place + 1 :]
        assert access.session(touched) is None, place


@pytest.mark.parametrize("cookie", ["", ".", "a", "a.b", "a.b.c", "ä.ö", "=.=", "W10=.W10="])
def test_what_is_no_cookie_of_ours_is_no_session(cookie: str) -> None:
    assert Access(TOKENS).session(cookie) is None


def test_a_session_ends_after_eight_hours() -> None:
    clock = Clock()
    access = Access(TOKENS, clock)
    _, cookie = access.start("admin")
    clock.now_s += SESSION_S - 1
    assert access.session(cookie)
    clock.now_s += 1
    assert access.session(cookie) is None


def test_a_form_belongs_to_one_session() -> None:
    access = Access(TOKENS)
    (one, _), (two, cookie) = access.start("admin"), access.start("admin")
    assert access.form_is_ours(one, access.form_token(one))
    for other in (access.form_token(two), "", cookie, "ä"):
        assert not access.form_is_ours(one, other)


def test_an_address_that_guesses_has_to_wait_a_minute_and_others_do_not() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    for _ in range(GUESSES):
        assert guesses.wait_s("10.0.0.1") == 0
        guesses.wrong("10.0.0.1")
    clock.now_s += 20
    assert guesses.wait_s("10.0.0.1") == GUESSES_S - 20
    assert guesses.wait_s("10.0.0.2") == 0
    clock.now_s += 40
    assert guesses.wait_s("10.0.0.1") == 0
    guesses.wrong("10.0.0.1")
    assert guesses.wait_s("10.0.0.1") == 0


def test_guesses_of_very_many_addresses_do_not_fill_the_memory() -> None:
    guesses = Guesses(Clock())
    for number in range(3_000):
        guesses.wrong(f"10.0.{number // 256}.{number % 256}")
    assert len(guesses._wrong) == 1_000
