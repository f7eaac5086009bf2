"""The tokens of the dashboard: by reference, long enough, not the same, shown nowhere."""

from collections.abc import Callable

import pytest

from relay.config import Settings, warnings
from relay.errors import ConfigError

Load = Callable[..., Settings]
ONE, TWO = "0123456789abcdef0123456789", "fedcba98765432109876543210"
BOTH = "web: {port: 8080, admin_token: {env: ONE}, viewer_token: {env: TWO}}"


def test_there_are_none_unless_they_are_set(loaded: Load) -> None:
    assert loaded("").resolved_tokens() == {}


def test_each_has_its_role_and_is_in_no_repr(loaded: Load) -> None:
    settings = loaded(BOTH, ONE=ONE, TWO=TWO)
    assert settings.resolved_tokens() == {"admin": ONE, "viewer": TWO}
    assert ONE not in repr(settings)


def test_a_variable_can_hold_one(loaded: Load) -> None:
    settings = loaded("", RELAY_WEB_ADMIN_TOKEN=ONE)
    assert settings.resolved_tokens() == {"admin": ONE}
    assert ONE not in repr(settings)


@pytest.mark.parametrize(
    ("one", "two", "says"),
    [
        ("short", TWO, "web.admin_token: env ONE: expected at least 20 visible characters"),
        (ONE, "ä" * 20, "web.viewer_token: env TWO: expected at least 20 visible characters"),
        ("", TWO, "web.admin_token: environment variable ONE is not set or empty"),
        (ONE, ONE, "web.viewer_token: is the same as web.admin_token"),
    ],
)
def test_one_that_cannot_be_used_is_refused_and_not_shown(loaded: Load, one: str, two: str, says: str) -> None:
    settings = loaded(BOTH, ONE=one, TWO=two)
    with pytest.raises(ConfigError, match=says) as refused:
        settings.resolved_tokens()
    assert TWO not in str(refused.value)
    assert "short" not in str(refused.value)


def test_one_in_the_file_itself_is_refused_and_not_shown(refused: Callable[..., list[str]]) -> None:
    [line] = refused(f"web: {{admin_token: {ONE}}}")
    assert "web.admin_token: a secret is given by reference" in line
    assert ONE not in line


def test_one_without_a_server_is_worth_a_warning(loaded: Load) -> None:
    destinations = "destinations: {a: {url: 'https://a.example', signed: false}}"
    text = f"{BOTH.replace('8080', '0')}\n{destinations}"
    assert "web.port is 0" in warnings(loaded(text, ONE=ONE, TWO=TWO))[0]
    assert warnings(loaded(text.replace("port: 0", "port: 8080"), ONE=ONE, TWO=TWO)) == []
