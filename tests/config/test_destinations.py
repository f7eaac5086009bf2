"""Destinations: what they inherit, the plain values they become, and what is worth a warning."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from relay import model
from relay.config import Settings, warnings
from relay.config.content import content
from relay.config.keys import Defaults, DestinationSettings
from relay.config.origin import OWN_KEYS

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]


def test_a_destination_that_states_nothing_has_the_defaults_of_the_model(loaded: Load) -> None:
    [destination] = loaded("destinations: {a: {url: 'https://a.example', signed: false}}").resolved_destinations()
    assert destination == model.Destination(name="a", url="https://a.example")


def test_everything_a_destination_states_reaches_the_plain_value(loaded: Load, tmp_path: Any) -> None:
    (tmp_path / "x.pem").write_text("")
    pem = tmp_path / "x.pem"
    [destination] = loaded(f"""
        destinations:
          a:
            url: https://a.example/x
            topics: [order.*]
            secrets: [{{env: S}}]
            key_suffix: two
            headers: {{X-A: b}}
            deadline_s: 9
            connect_timeout_s: 2
            max_in_flight: 3
            rate_per_s: 0.5
            retry: {{max_attempts: 2, base_s: 1, factor: 2, cap_s: 3, jitter: 0, retry_after_cap_s: 4}}
            permanent_statuses: [400]
            on_dead: skip
            tls: {{ca_file: {pem}, client_certificate_file: {pem}, client_key_file: {pem}, minimum_version: 1.3}}
            proxy: http://proxy:3128
            egress: [10.0.0.0/8, 'fd00::/8']
            key_form: structured
    """).resolved_destinations()
    assert destination == model.Destination(
        name="a",
        url="https://a.example/x",
        topics=("order.*",),
        secrets=(b"ABC" * 8,),
        headers=(("X-A", "b"),),
        deadline_s=9,
        connect_timeout_s=2,
        max_in_flight=3,
        rate_per_s=0.5,
        retry=model.RetryPolicy(2, 1, 2, 3, 0, 4),
        permanent_statuses=frozenset({400}),
        on_dead="skip",
        key_form="structured",
        key_suffix="two",
        egress=("10.0.0.0/8", "fd00::/8"),
        tls=model.Tls(
            str(pem),
            str(pem),
            str(pem),
            "1.3",
            tuple((f"{key}_file", content(str(pem))) for key in ("ca", "client_certificate", "client_key")),
        ),
        proxy="http://proxy:3128",
    )


def test_destinations_inherit_key_by_key_and_mappings_are_merged(loaded: Load) -> None:
    settings = loaded("""
        defaults:
          deadline_s: 10
          rate_per_s: 5
          permanent_statuses: [400]
          retry: {max_attempts: 3, base_s: 2}
          headers: {X-All: a, X-Own: a}
          signed: false
        destinations:
          a: {url: 'https://a.example', retry: {base_s: 7}, headers: {X-Own: b}, permanent_statuses: [422]}
          b: {url: 'https://b.example', deadline_s: 12, rate_per_s: }
    """)
    a, b = settings.resolved_destinations()
    assert (a.deadline_s, a.rate_per_s, a.permanent_statuses) == (10, 5, frozenset({422}))
    assert (a.retry.max_attempts, a.retry.base_s, a.retry.factor) == (3, 7, 4)
    assert a.headers == (("X-All", "a"), ("X-Own", "b"))
    assert (b.deadline_s, b.rate_per_s, b.permanent_statuses) == (12, None, frozenset({400}))
    assert settings.destinations["a"].deadline_s == 10


def test_a_secret_reference_replaces_an_inherited_one(loaded: Load) -> None:
    text = """
        defaults: {headers: {Authorization: {file: /nope}}, signed: false}
        destinations: {a: {url: 'https://a.example', headers: {Authorization: {env: T}}}}
    """
    assert loaded(text, T="Bearer t").resolved_destinations()[0].headers == (("Authorization", "Bearer t"),)


def test_an_inherited_fault_is_told_once_where_it_is_written(refused: Refused) -> None:
    both = "destinations: {a: {url: 'https://a.example'}, b: {url: 'https://b.example'}}"
    assert refused(f"defaults: {{signed: false, deadline_s: -1}}\n{both}") == [
        "relay.yaml:1: defaults.deadline_s: -1: must be greater than 0"
    ]
    assert refused(f"defaults: {{signed: false, headers: {{X-A: {{env: NOPE}}}}}}\n{both}") == [
        "relay.yaml:1: defaults.headers.X-A: environment variable NOPE is not set or empty"
    ]


def test_the_keys_a_destination_does_not_inherit_are_listed_for_error_messages() -> None:
    assert {(key,) for key in DestinationSettings.model_fields.keys() - Defaults.model_fields.keys()} == OWN_KEYS


def test_settings_are_frozen(loaded: Load) -> None:
    settings = loaded("")
    with pytest.raises(ValidationError):
        settings.replica.lease_s = 1


def _pair(first: str, second: str) -> str:
    return f"""
        defaults: {{signed: false}}
        destinations:
          a: {{{first}}}
          b: {{{second}}}
    """


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("url: 'https://x.example/1', topics: [a]", "url: 'https://X.example:443/2', topics: [b, a]"),
        ("url: 'https://x.example/1', topics: ['a.*']", "url: 'https://x.example/2', topics: [a.b]"),
        ("url: 'https://x.example/1', topics: [a.b.c]", "url: 'https://x.example/2', topics: ['a.*']"),
        ("url: 'https://x.example/1', topics: ['*']", "url: 'https://x.example/2', topics: ['a.*']"),
    ],
)
def test_two_destinations_with_common_topics_and_one_origin_are_worth_a_warning(
    loaded: Load, first: str, second: str
) -> None:
    [warning] = warnings(loaded(_pair(first, second)))
    assert warning.startswith("destinations.a and destinations.b have common topics and the same origin")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("url: 'https://x.example', topics: [a]", "url: 'https://x.example', topics: [b, 'aa.*']"),
        ("url: 'https://x.example', topics: [a]", "url: 'https://x.example:444', topics: [a]"),
        ("url: 'https://x.example', topics: [a]", "url: 'https://x.example', topics: [a], key_suffix: b"),
        ("url: 'https://x.example', topics: [a]", "url: 'https://y.example', topics: [a]"),
    ],
)
def test_destinations_that_cannot_meet_are_worth_none(loaded: Load, first: str, second: str) -> None:
    assert warnings(loaded(_pair(first, second))) == []


def test_no_destination_at_all_is_worth_a_warning(loaded: Load) -> None:
    [warning] = warnings(loaded(""))
    assert warning.startswith("destinations: none is configured")
