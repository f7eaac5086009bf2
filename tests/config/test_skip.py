"""Destinations that are configured wrongly: refused with all others, or alone where somebody asked for that."""

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.config import Settings, warnings
from relay.errors import ConfigError

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]

DESTINATIONS = """
destinations:
  good: {url: 'https://a.example', secrets: [{env: S}]}
  bad: {%s}
"""
SKIP = "replica: {skip_broken_destinations: true}"
# What is wrong is found when the file is read, when keys are compared, or when secrets and files are.
BROKEN = {
    "url": ("url: 'https://0177.0.0.1', secrets: [{env: S}]", "url: 0177.0.0.1 is the address 127.0.0.1 in another"),
    "plain http": ("url: 'http://b.example', secrets: [{env: S}]", "url: plain http to b.example: use https, or set"),
    "secret": ("url: 'https://b.example', secrets: [{env: T}]", "secrets[0]: environment variable T is not set or"),
    "header": (
        "url: 'https://b.example', secrets: [{env: S}], headers: {Host: x}",
        "headers.Host: header 'Host' is set by the relay and cannot be replaced",
    ),
    "file": (
        "url: 'https://b.example', secrets: [{env: S}], tls: {ca_file: /nope.pem}",
        "tls.ca_file: /nope.pem cannot be read: No such file or directory",
    ),
}
broken = pytest.mark.parametrize(("settings", "why"), BROKEN.values(), ids=BROKEN)


@broken
def test_one_wrong_destination_refuses_all_with_file_line_key_and_reason(
    refused: Refused, settings: str, why: str
) -> None:
    [line] = refused(DESTINATIONS % settings)
    assert line.startswith(f"relay.yaml:4: destinations.bad.{why}")


@broken
def test_where_it_was_asked_for_the_others_are_loaded_and_the_reason_is_kept(
    loaded: Load, tmp_path: Path, settings: str, why: str
) -> None:
    found = loaded(SKIP + DESTINATIONS % settings)
    assert [each.name for each in found.resolved_destinations()] == ["good"]
    [(name, sentence)] = found.broken_destinations().items()
    assert name == "bad"
    assert sentence.startswith(f"{tmp_path}/relay.yaml:4: destinations.bad.{why}")
    assert [each for each in warnings(found) if each == f"{sentence}; replicas skip this destination, its jobs wait"]
    assert found.destination_names() == {"good", "bad"}


def test_the_environment_can_ask_for_it_too(loaded: Load) -> None:
    found = loaded(DESTINATIONS % BROKEN["url"][0], RELAY_REPLICA_SKIP_BROKEN_DESTINATIONS="true")
    assert found.broken_destinations().keys() == {"bad"}


def test_every_fault_of_a_skipped_destination_is_kept(loaded: Load) -> None:
    found = loaded(SKIP + DESTINATIONS % "url: 'https://b.example', secrets: [{env: T}, {env: U}]")
    assert len(found.broken_destinations()["bad"].splitlines()) == 2


@pytest.mark.parametrize(
    "text",
    [
        SKIP + "\ndestinations: {a: {url: 'https://a.example', secrets: [{env: T}]}}",
        SKIP + "\ndefaults: {deadline_s: -1}" + DESTINATIONS % BROKEN["url"][0],
        SKIP + "\ndefaults: {deadline_s: 100}" + DESTINATIONS % BROKEN["plain http"][0],
        SKIP + "\nreplicas: {}" + DESTINATIONS % BROKEN["url"][0],
        SKIP + "\ndestinations: 5",
    ],
    ids=["none is left", "a fault of all", "a contradiction of all", "a fault elsewhere", "no mapping at all"],
)
def test_what_is_wrong_with_more_than_single_destinations_is_refused_all_the_same(loaded: Load, text: str) -> None:
    with pytest.raises(ConfigError):
        loaded(text).resolved_destinations()


def test_nothing_is_said_of_broken_destinations_where_all_are_right(loaded: Load) -> None:
    found = loaded(SKIP + DESTINATIONS % "url: 'https://b.example', secrets: [{env: S}]")
    assert (len(found.resolved_destinations()), found.broken_destinations(), warnings(found)) == (2, {}, [])
