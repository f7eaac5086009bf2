"""Texts that no wire and no terminal can take."""

from collections.abc import Callable

import pytest

Refused = Callable[..., list[str]]


@pytest.mark.parametrize("key", ["a\\r\\nb", "\\e[2J", "\\u2028", "\\x85"])
def test_a_key_that_breaks_the_line_is_one_line_of_the_refusal(refused: Refused, key: str) -> None:
    [line] = refused(f'database: {{"{key}": 1}}')
    assert line.startswith("relay.yaml:1: database.")
    assert line.isprintable()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            'destinations: {"\\ud83d": {url: "https://a.example"}, a: {url: "https://a.example"}}',
            r"destinations.\ud83d",
        ),
        ('destinations: {a: {url: "https://a.example/\\ud800"}}', "destinations.a.url"),
        ('destinations: {a: {url: "https://a.example", topics: ["*", "\\udcff"]}}', "destinations.a.topics[1]"),
    ],
)
def test_half_a_character_is_refused_with_its_place(refused: Refused, text: str, where: str) -> None:
    [line] = refused(text)
    assert line == f"relay.yaml:1: {where}: holds half a character (a lone surrogate); write it whole"


def test_a_variable_that_is_not_utf_8_is_refused_by_its_name(refused: Refused) -> None:
    [line] = refused("database: {listen_dsn: {env: L}}", L="host=\udcff")
    assert line == "relay.yaml:1: database.listen_dsn: environment variable L is not UTF-8 text"
