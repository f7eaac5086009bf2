"""Each key's own rule, and the rules between keys."""

from collections.abc import Callable

import pytest

from relay.config import Settings

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]

UNSIGNED = "destinations:\n  a:\n    url: https://a.example\n    signed: false\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("defaulst: {}", "defaulst: unknown key; did you mean defaults?"),
        ("pool_size: 4", "pool_size: unknown key here; did you mean database.pool_size?"),
        ("log: {colour: x}", "log.colour: unknown key; the keys here are level, format"),
        ("defaults: {retry: {max_atempts: 1}}", "defaults.retry.max_atempts: unknown key; did you mean max_attempts?"),
        ("log: 4", "log: is a number or boolean; must be a mapping"),
        ("replica: {name: 42}", "replica.name: 42: must be a valid string; quote it"),
        ("replica: {name: a b}", "replica.name: 'a b': expected up to 200 visible ASCII characters"),
        ("replica: {lease_s: .inf}", "replica.lease_s: inf: must be a finite number"),
        ("replica: {lease_s: soon}",
         "replica.lease_s: 'soon': must be a valid number, unable to parse string as a number"),
        ("replica: {poll_s: 0}", "replica.poll_s: 0: must be greater than 0"),
        ("replica: {poll_s: true}", "replica.poll_s: true: must be a number"),
        ("database: {pool_size: 1}", "database.pool_size: 1: must be greater than or equal to 2"),
        ("database: {listen_dsn: {environment: X}}",
         "database.listen_dsn: expected a connection string, {env: NAME} or {file: PATH}"),
        ("defaults: {retry: {jitter: 1.5}}", "defaults.retry.jitter: 1.5: must be less than or equal to 1"),
        ("defaults: {permanent_statuses: [99]}",
         "defaults.permanent_statuses[0]: 99: must be greater than or equal to 100"),
        ("defaults: {permanent_statuses: 400}",
         "defaults.permanent_statuses: is a number or boolean; must be a list; write [400]"),
        ("defaults: {egress: private}",
         "defaults.egress: 'private': expected any, public, or a list of networks such as [10.0.0.0/8]"),
        ("defaults: {egress: [10.0.0.1/8]}",
         "defaults.egress: 10.0.0.1/8 has host bits set; write a network such as 10.0.0.0/8"),
        ("defaults: {egress: [lan]}",
         "defaults.egress: 'lan' does not appear to be an IPv4 or IPv6 network; write a network such as 10.0.0.0/8"),
        ("defaults: {headers: {X-Version: 2}}",
         "defaults.headers.X-Version: a header's value is text (quote numbers and dates), {env: NAME} or {file: PATH}"),
        ("defaults: {headers: {authorization: Bearer x}}",
         "defaults.headers.authorization: is a credential; give it by reference: {env: NAME} or {file: PATH}"),
        ("defaults: {proxy: 'socks://x'}", "defaults.proxy: not a proxy's URL: expected http://HOST:PORT"),
        ("defaults: {tls: {minimum_version: 1.1}}", "defaults.tls.minimum_version: '1.1': must be '1.2' or '1.3'"),
        ("destinations: {A: {url: 'https://a', signed: false}}",
         "destinations.A: 'A': expected 1 to 63 of a-z 0-9 _ -, beginning with a letter or digit"),
        ("destinations: {a: }", "destinations.a.url: not set, and there is no default"),
        ("replica: {drain_s: 30.5}",
         "replica.drain_s: 30.5 s + 10 s must be at most replica.termination_grace_s, 40 s"),
        ("defaults: {deadline_s: 20}", "defaults.deadline_s: 20 s + 5 s must be less than replica.drain_s, 25 s"),
        ("replica: {lease_s: 20}", "defaults.deadline_s: 15 s + 5 s must be less than replica.lease_s, 20 s"),
        ("defaults: {retry: {base_s: 90, cap_s: 80}}",
         "defaults.retry.cap_s: 80 s is less than defaults.retry.base_s, 90 s"),
        ("defaults: {tls: {client_key_file: k}}",
         "defaults.tls.client_key_file: k has no certificate; defaults.tls.client_certificate_file is not set"),
    ],
)  # fmt: skip
def test_a_wrong_key_has_one_line_with_its_value_and_what_is_allowed(refused: Refused, text: str, line: str) -> None:
    [told] = refused(text)
    assert told.removeprefix("relay.yaml:1: ").removeprefix("relay.yaml: ") == line


@pytest.mark.parametrize(
    ("text", "path", "sentence"),
    [
        ("topics: ['order*']", "topics[0]", "'order*': expected a topic, prefix.* or *"),
        ("topics: ['*.paid']", "topics[0]", "'*.paid': expected a topic, prefix.* or *"),
        ("topics: order.paid", "topics", "is text; must be a list; write [order.paid]"),
        ("key_suffix: a.b", "key_suffix", "'a.b': expected at most 64 of A-Z a-z 0-9 _ -"),
        ("headers: {Host: a}", "headers.Host", "header 'Host' is set by the relay and cannot be replaced"),
        ("headers: {x-a: a, X-A: b}", "headers.X-A", "is the same header as destinations.a.headers.x-a"),
        ("tls: {ca_file: /nope}", "tls.ca_file", "/nope cannot be read: No such file or directory"),
        ("deadline_s: 56", "deadline_s", "56 s + 5 s must be less than replica.lease_s, 60 s"),
        ("retry: {cap_s: 4}", "retry.cap_s", "4 s is less than defaults.retry.base_s, 5 s"),
        ("secrets: [{env: S}]", "secrets", "1 listed, but destinations.a.signed is false; remove one of the two"),
    ],
)
def test_a_wrong_key_of_a_destination_is_told_where_it_is_written(
    refused: Refused, text: str, path: str, sentence: str
) -> None:
    assert f"relay.yaml:5: destinations.a.{path}: {sentence}" in refused(f"{UNSIGNED}    {text}\n")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://a.example", "scheme 'ftp' is not supported: write https://…"),
        ("a.example/x", "scheme '' is not supported: write https://…"),
        ("https:///x", "names no host: write https://HOST/PATH"),
        ("https://u@a.example", "holds a user or password; use headers with a secret reference"),
        ("https://a.example/#x", "has a fragment (#…), which is never sent; remove it"),
        ("https://a.example/#", "has a fragment (#…), which is never sent; remove it"),
        ("https://a.example/ü", "path and query must be ASCII; percent-encode the rest"),
        *(
            (url, "not a URL (bad port or host, or a space, backslash or control character in it)")
            for url in ("https://a.example:x", "https://a.example:99999", "https://[::1", "https://a b", "https://a\\b")
        ),
        ("https://0177.0.0.1", "0177.0.0.1 is the address 127.0.0.1 in another spelling; write 127.0.0.1"),
        ("https://2852039166", "169.254.169.254 is link-local, where clouds serve credentials; no policy allows it"),
        *(
            (url, "not a URL (bad port or host, or a space, backslash or control character in it)")
            for url in ("https://[v1.a]", "https://[::1]]", "https://[::1]x", "https://a[::1]")
        ),
        (
            "http://a.example",
            "plain http to a.example: use https, or set destinations.a.insecure_http to true (it is false)",
        ),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(refused: Refused, url: str, sentence: str) -> None:
    assert refused(f"destinations: {{a: {{url: '{url}', signed: false}}}}") == [
        f"relay.yaml:1: destinations.a.url: {sentence}"
    ]


def test_an_address_outside_the_destinations_own_policy_is_refused_with_both_keys(
    refused: Refused, loaded: Load
) -> None:
    text = "destinations: {a: {url: 'https://10.0.0.1', signed: false, egress: %s}}"
    outside = "10.0.0.1 is outside the destination's egress policy (public); destinations.a.egress does not allow it"
    assert refused(text % "public") == [f"relay.yaml:1: destinations.a.url: {outside}"]
    loaded(text % "[10.0.0.0/8]")
    # The proxy is what is connected to.
    loaded(text % "public, proxy: 'http://proxy:3128'")


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:1", "app.localhost"])
def test_plain_http_is_fine_on_loopback(loaded: Load, host: str) -> None:
    loaded(f"destinations: {{a: {{url: 'http://{host}/x', signed: false}}}}")


def test_plain_http_elsewhere_has_to_be_asked_for(loaded: Load) -> None:
    loaded("destinations: {a: {url: 'http://a.svc', insecure_http: true, signed: false}}")


def test_a_destination_without_secrets_has_to_say_that_it_is_not_signed(refused: Refused) -> None:
    assert refused("destinations: {a: {url: 'https://a.example'}}") == [
        "relay.yaml:1: destinations.a.secrets: none to sign with: list one, or set defaults.signed false (it is true)"
    ]


def test_every_fault_is_told_at_once(refused: Refused) -> None:
    assert len(refused("log: {level: loud, format: xml}\ndatabase: {pool_size: 1}\nnope: 1")) == 4


def test_a_drain_that_leaves_just_enough_of_the_grace_period_is_taken(loaded: Load) -> None:
    assert loaded("replica: {drain_s: 30}").replica.drain_s == 30


@pytest.mark.parametrize("topic", ["*", "order.paid", "order.*", "order.paid.*", "Bestellung/ü"])
def test_topics_are_exact_or_a_prefix_or_everything(loaded: Load, topic: str) -> None:
    settings = loaded(f"destinations: {{a: {{url: 'https://a.example', signed: false, topics: ['{topic}']}}}}")
    assert settings.resolved_destinations()[0].topics == (topic,)
