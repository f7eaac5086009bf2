"""Signatures by Standard Webhooks 1.0 (standardwebhooks.com): HMAC-SHA256 over `id.timestamp.body`."""

import binascii
import hmac
from collections.abc import Sequence

_PREFIX = "whsec_"


def secret_bytes(text: str) -> bytes:
    """The key inside `whsec_<base64 of 24 to 64 bytes>`; the padding may be missing, as receivers allow too.

    Raises ValueError with a sentence that names the fault and never the value.
    """
    if not text.startswith(_PREFIX):
        raise ValueError(f"a signing secret starts with {_PREFIX}, followed by 24 to 64 bytes in base64")
    encoded = text.removeprefix(_PREFIX)
    try:
        secret = binascii.a2b_base64(encoded + "=" * (-len(encoded) % 4), strict_mode=True)
    except ValueError:
        raise ValueError(f"the signing secret is not base64 after {_PREFIX}") from None
    if not 24 <= len(secret) <= 64:
        raise ValueError(f"the signing secret holds {len(secret)} bytes; 24 to 64 are needed")
    return secret


def signature(secrets: Sequence[bytes], key: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: one `v1,<base64>` for each secret, separated by spaces.

    `key` is the webhook-id as it is sent, `timestamp_s` the attempt's time in whole seconds since 1970, and
    `body` the very bytes that are sent.
    """
    signed = f"{key}.{timestamp_s}.".encode() + body
    return " ".join("v1," + _base64(hmac.digest(secret, signed, "sha256")) for secret in secrets)


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")
