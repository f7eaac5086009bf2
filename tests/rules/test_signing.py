import base64
import contextlib
import hashlib
import hmac
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from relay.rules.signing import secret_bytes, signature

SPEC_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

secrets = st.binary(min_size=24, max_size=64)
keys = st.from_regex(r"[!-+/-~\-]{1,255}", fullmatch=True)


def whsec(secret: bytes) -> str:
    return "whsec_" + base64.b64encode(secret).decode()


def test_the_example_of_the_public_library_is_reproduced() -> None:
    signed = signature([secret_bytes(SPEC_SECRET)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(secrets, keys, st.text())
def test_any_text_is_verified_by_the_public_library(secret: bytes, key: str, body: str) -> None:
    timestamp_s = int(time.time())
    sent = {
        "webhook-id": key,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signature([secret], key, timestamp_s, body.encode()),
    }
    Webhook(whsec(secret)).verify(body.encode(), sent, json_parse=False)


def test_an_emoji_body_is_verified_by_the_public_library() -> None:
    timestamp_s = int(time.time())
    body = '{"mood": "🦄 \\u0000"}'.encode()
    sent = {
        "webhook-id": "k",
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signature([b"s" * 24], "k", timestamp_s, body),
    }
    assert Webhook(whsec(b"s" * 24)).verify(body, sent) == {"mood": "🦄 \x00"}


@given(secrets, keys, st.integers(0, 2**40), st.binary())
def test_any_bytes_are_signed_as_id_dot_timestamp_dot_body(
    secret: bytes, key: str, timestamp_s: int, body: bytes
) -> None:
    digest = hmac.new(secret, f"{key}.{timestamp_s}.".encode() + body, hashlib.sha256).digest()
    assert signature([secret], key, timestamp_s, body) == "v1," + base64.b64encode(digest).decode()


def test_during_a_rotation_receivers_with_the_old_and_with_the_new_secret_both_verify() -> None:
    timestamp_s = int(time.time())
    old, new, other = b"o" * 24, b"n" * 32, b"x" * 64
    sent = {
        "webhook-id": "k",
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signature([new, old], "k", timestamp_s, b"{}"),
    }
    assert sent["webhook-signature"].count("v1,") == 2
    Webhook(whsec(old)).verify(b"{}", sent)
    Webhook(whsec(new)).verify(b"{}", sent)
    with pytest.raises(WebhookVerificationError):
        Webhook(whsec(other)).verify(b"{}", sent)


@given(secrets)
def test_a_secret_is_read_with_and_without_padding(secret: bytes) -> None:
    assert secret_bytes(whsec(secret)) == secret
    assert secret_bytes(whsec(secret).rstrip("=")) == secret


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "starts with whsec_"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with whsec_"),
        ("WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with whsec_"),
        ("whsec_", "holds 0 bytes"),
        ("whsec_c2hvcnQ=", "holds 5 bytes"),
        (whsec(b"x" * 23), "holds 23 bytes"),
        (whsec(b"x" * 65), "holds 65 bytes"),
        (SPEC_SECRET + "\n", "not base64"),
        ("whsec_not base64 at all, really not", "not base64"),
        (SPEC_SECRET.replace("8", "-"), "not base64"),
        (SPEC_SECRET.replace("8", "é"), "not base64"),
        (SPEC_SECRET + "A", "not base64"),
    ],
)
def test_a_bad_secret_is_refused_with_its_fault_and_without_its_value(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as raised:
        secret_bytes(text)
    value = text.removeprefix("whsec_")
    assert not value or value not in str(raised.value)


@given(st.text())
def test_any_text_is_a_readable_secret_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 24 <= len(secret_bytes("whsec_" + text)) <= 64
