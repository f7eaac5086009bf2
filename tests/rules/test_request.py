import base64
import re
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from relay import __version__
from relay.model import Destination, Job
from relay.rules.request import (
    RESERVED_HEADERS,
    RESERVED_PREFIXES,
    header_fault,
    headers,
    valid_traceparent,
    valid_tracestate,
)
from relay.rules.signing import signature

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
JOB = Job(
    id=7,
    destination="shop",
    topic="order.paid",
    entity_key=None,
    idempotency_key="5b6c",
    content_type="application/json",
    body=b"{}",
    headers={},
    attempts=3,
    claims=4,
)
SHOP = Destination("shop", "https://shop.test/")
SIGNED = replace(SHOP, secrets=(b"o" * 24, b"n" * 24))


def sent(job: Job, destination: Destination = SHOP) -> dict[str, str]:
    """Headers by lower-case name; a name sent twice fails the test."""
    pairs = headers(job, destination, 1_700_000_000)
    named = {name.lower(): value for name, value in pairs}
    assert len(named) == len(pairs)
    return named


def test_the_plainest_job_is_sent_with_exactly_these_headers() -> None:
    assert headers(JOB, SHOP, 1_700_000_000) == [
        ("Content-Type", "application/json"),
        ("User-Agent", f"outbox-relay/{__version__}"),
        ("Idempotency-Key", "5b6c"),
        ("Relay-Topic", "order.paid"),
        ("Relay-Sequence", "7"),
        ("Relay-Attempt", "3"),
    ]


def test_a_job_with_everything_uses_reserved_names_only() -> None:
    job = replace(JOB, entity_key="e", traceparent=TRACEPARENT, tracestate="a=b", redrive=True)
    assert set(sent(job, SIGNED)) <= RESERVED_HEADERS


def test_an_idempotency_key_is_a_quoted_string_where_the_destination_wants_the_structured_form() -> None:
    destination = replace(SHOP, key_form="structured")
    assert sent(JOB, destination)["idempotency-key"] == '"5b6c"'
    assert sent(replace(JOB, idempotency_key='a"b\\c'), destination)["idempotency-key"] == '"a\\"b\\\\c"'


def test_a_key_suffix_is_part_of_idempotency_key_and_webhook_id() -> None:
    named = sent(JOB, replace(SIGNED, key_suffix="eu"))
    assert named["idempotency-key"] == named["webhook-id"] == "5b6c-eu"
    assert named["webhook-signature"] == signature(SIGNED.secrets, "5b6c-eu", 1_700_000_000, b"{}")


def test_a_destination_with_secrets_is_signed_with_the_attempts_own_time() -> None:
    named = sent(JOB, SIGNED)
    assert named["webhook-timestamp"] == "1700000000"
    assert named["webhook-signature"] == signature(SIGNED.secrets, "5b6c", 1_700_000_000, b"{}")


def test_a_destination_without_secrets_gets_no_webhook_headers() -> None:
    assert not [name for name in sent(JOB) if name.startswith("webhook-")]


def test_the_public_library_verifies_the_headers_as_they_are_sent() -> None:
    pairs = headers(JOB, replace(SIGNED, key_suffix="eu"), int(time.time()))
    for secret in SIGNED.secrets:
        assert Webhook("whsec_" + base64.b64encode(secret).decode()).verify(JOB.body, dict(pairs)) == {}


def test_the_trace_of_the_writing_transaction_is_passed_on() -> None:
    named = sent(replace(JOB, traceparent=TRACEPARENT, tracestate="congo=t61rcWkgMzE"))
    assert (named["traceparent"], named["tracestate"]) == (TRACEPARENT, "congo=t61rcWkgMzE")


def test_a_malformed_traceparent_takes_its_tracestate_with_it() -> None:
    named = sent(replace(JOB, traceparent="00-nonsense", tracestate="congo=t61rcWkgMzE"))
    assert not {"traceparent", "tracestate"} & set(named)


def test_a_malformed_tracestate_leaves_the_traceparent_alone() -> None:
    named = sent(replace(JOB, traceparent=TRACEPARENT, tracestate="a=b\r\nX: y"))
    assert "traceparent" in named
    assert "tracestate" not in named


@pytest.mark.parametrize(
    "text",
    [
        TRACEPARENT,
        "00-" + "a" * 32 + "-" + "b" * 16 + "-00",
        "01-" + "a" * 32 + "-" + "b" * 16 + "-00",
        "cc-" + "a" * 32 + "-" + "b" * 16 + "-00-what-the-future-brings",
    ],
)
def test_a_well_formed_traceparent_is_valid(text: str) -> None:
    assert valid_traceparent(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ff" + TRACEPARENT[2:],
        TRACEPARENT.upper(),
        TRACEPARENT + "-",
        TRACEPARENT + "-00",
        TRACEPARENT + "\n",
        " " + TRACEPARENT,
        TRACEPARENT[:-1],
        "01" + TRACEPARENT[2:] + "x",
        "01" + TRACEPARENT[2:] + "-\r\n",
        "00-" + "0" * 32 + "-" + "b" * 16 + "-00",
        "00-" + "a" * 32 + "-" + "0" * 16 + "-00",
        "00-" + "٣" * 32 + "-" + "b" * 16 + "-00",
    ],
)
def test_a_malformed_traceparent_is_not_valid(text: str) -> None:
    assert not valid_traceparent(text)


@pytest.mark.parametrize(
    "text", ["a=b", "a=b,c=d", "a=b , \tc=d", "a=b,,", "tenant@vendor=x", "0a/b*c-d_e= x y", "a=" + "v" * 256]
)
def test_a_well_formed_tracestate_is_valid(text: str) -> None:
    assert valid_tracestate(text)


@pytest.mark.parametrize(
    "text",
    ["", ",", "a", "=b", "a=", "A=b", "a=b=c", "a=b,a=c", "a=é", "a=b\r\n", "a=" + "v" * 257],
)
def test_a_malformed_tracestate_is_not_valid(text: str) -> None:
    assert not valid_tracestate(text)


def test_a_tracestate_has_at_most_32_members() -> None:
    members = [f"k{i}=v" for i in range(33)]
    assert valid_tracestate(",".join(members[:32]))
    assert not valid_tracestate(",".join(members))


def test_an_entity_key_of_visible_ascii_is_sent_as_it_is() -> None:
    assert sent(replace(JOB, entity_key="order-42/eu?x=&#"))["relay-entity-key"] == "order-42/eu?x=&#"


def test_an_entity_key_that_is_not_visible_ascii_is_percent_encoded() -> None:
    assert sent(replace(JOB, entity_key="Köln 50%"))["relay-entity-key"] == "K%C3%B6ln%2050%25"


@given(st.text(), st.text())
def test_topic_and_entity_key_come_back_by_percent_decoding(topic: str, entity_key: str) -> None:
    named = sent(replace(JOB, topic=topic, entity_key=entity_key))
    assert unquote(named["relay-topic"]) == topic
    assert unquote(named["relay-entity-key"]) == entity_key


def test_a_redriven_job_says_so() -> None:
    assert sent(replace(JOB, redrive=True))["relay-redrive"] == "true"


def test_headers_of_the_destination_and_of_the_row_are_sent_as_written() -> None:
    destination = replace(SHOP, headers=(("Authorization", "Bearer s"), ("X-Team", "")))
    pairs = headers(replace(JOB, headers={"X-Tenant": "a\tb c"}), destination, 0)
    assert pairs[-3:] == [("Authorization", "Bearer s"), ("X-Team", ""), ("X-Tenant", "a\tb c")]


def test_a_row_cannot_replace_a_header_of_the_destination() -> None:
    destination = replace(SHOP, headers=(("Authorization", "Bearer operator"),))
    named = sent(replace(JOB, headers={"authorization": "Bearer producer", "x-a": "b"}), destination)
    assert (named["authorization"], named["x-a"]) == ("Bearer operator", "b")


@pytest.mark.parametrize("name", ["Host", "content-length", "Idempotency-Key", "Webhook-Id", "Relay-Later", "TE"])
def test_a_reserved_header_in_a_row_fails_the_attempt_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"header '{name}' is set by the relay"):
        headers(replace(JOB, headers={name: "value"}), SHOP, 0)


hostile = st.text(alphabet=st.sampled_from("\r\n\0\tab é\x7f")).filter(
    lambda text: bool(re.search(r"[\r\n\0é\x7f]", text))
)


@given(
    st.sampled_from(
        ["content_type", "idempotency_key", "row name", "row value", "destination name", "destination value"]
    ),
    hostile,
)
def test_what_cannot_stand_in_a_header_is_never_sent_wherever_it_comes_from(place: str, text: str) -> None:
    job, destination = JOB, SHOP
    match place:
        case "content_type":
            job = replace(JOB, content_type=text)
        case "idempotency_key":
            job = replace(JOB, idempotency_key=text)
        case "row name":
            job = replace(JOB, headers={text: "v"})
        case "row value":
            job = replace(JOB, headers={"X-A": text})
        case "destination name":
            destination = replace(SHOP, headers=((text, "v"),))
        case _:
            destination = replace(SHOP, headers=(("X-A", text),))
    with pytest.raises(ValueError, match="header"):
        headers(job, destination, 0)


def test_the_error_about_a_value_that_cannot_be_sent_does_not_contain_it() -> None:
    with pytest.raises(ValueError, match="'Authorization'") as raised:
        headers(JOB, replace(SHOP, headers=(("Authorization", "Bearer hunter2\n"),)), 0)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "é", "a(b)", '"a"'])
def test_a_header_name_that_is_no_token_has_a_fault(name: str) -> None:
    assert "may hold only letters" in str(header_fault(name, "v"))


@pytest.mark.parametrize("value", [" secret", "secret ", "\tsecret", "secret\r\nb", "secret\0b", "secreté"])
def test_a_header_value_that_is_not_visible_ascii_has_a_fault_without_the_value(value: str) -> None:
    fault = header_fault("X-A", value)
    assert fault is not None
    assert "visible ASCII" in fault
    assert "secret" not in fault


@pytest.mark.parametrize("name", sorted(RESERVED_HEADERS) + [prefix + "anything" for prefix in RESERVED_PREFIXES])
def test_a_reserved_header_has_a_fault_in_any_case(name: str) -> None:
    assert "cannot be replaced" in str(header_fault(name.title(), "v"))


@pytest.mark.parametrize("value", ["", "v", "a b", "a\tb", "Bearer x.y~z=="])
def test_an_ordinary_header_has_no_fault(value: str) -> None:
    assert header_fault("X-Any_thing.1", value) is None


def test_the_constraint_on_rows_reserves_the_same_names() -> None:
    schema = (Path(__file__).parents[2] / "schema" / "0001_job.sql").read_text()
    found = re.search(r'job_headers_leave_reserved_names_alone.*?"\^\(([^"]*)\)\$"', schema, re.DOTALL)
    assert found is not None
    alternatives = set(found[1].split("|"))
    prefixes = {name.removesuffix(".*") for name in alternatives if name.endswith(".*")}
    assert prefixes == set(RESERVED_PREFIXES)
    assert {name for name in alternatives if not name.endswith(".*")} == {
        name for name in RESERVED_HEADERS if not name.startswith(RESERVED_PREFIXES)
    }
