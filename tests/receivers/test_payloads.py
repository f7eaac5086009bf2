"""Whatever a row holds arrives as those bytes, with a signature over those bytes."""

import base64
import hashlib
import hmac
import os
from typing import Unpack

import pytest

from tests.receivers.street import Row, Street
from tests.sender.receiver import OK, Connection
from tests.service.replica import SECRET

JSON = {
    "emoji": '{"mood": "\U0001f984 \U0001f468\u200d\U0001f469\u200d\U0001f467"}',
    "escaped null": r'{"name": "a\u0000b"}',
    "1e400": '{"huge": 1e400, "tiny": -1e-400}',
    "20 digits": "[12345678901234567890, 0.10000000000000000001, 1.0]",
    "duplicate keys": '{"a": 1, "a": 2, "a": {"b": 1, "b": 2}}',
    "leading spaces": ' \n\t  {"a" :1}  \n',
    "half a surrogate pair": r'"\ud83e"',
    "1 byte": "1",
    "1 MiB": '"' + "é" * (2**19 - 1) + '"',
    "a thousand levels": "[" * 1000 + "]" * 1000,
}
BYTES = {
    "empty": b"",
    "1 byte": b"\0",
    "1 MiB": os.urandom(2**20),
    "binary": bytes(range(256)) * 16,
    "a request": b"GET / HTTP/1.1\r\nHost: internal\r\n\r\n",
    "a gzip": base64.b64decode("H4sIAAAAAAAAA6tWSlSyMqwFAF9CVgEHAAAA"),
    "invalid utf-8": b"\xff\xfe\xc3\x28",
    "byte order mark": b"\xef\xbb\xbf{}",
}


def signed(head: bytes, body: bytes) -> bool:
    """Standard Webhooks by hand: the library takes nothing but UTF-8."""
    headers = dict(line.split(": ", 1) for line in head.decode("ascii").split("\r\n")[1:-2])
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), content, hashlib.sha256)
    return headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


async def arrives(street: Street, expected: bytes, sent_as: str, **row: Unpack[Row]) -> None:
    """Send a row, and compare what came out of the socket."""
    arrived: list[tuple[bytes, bytes]] = []

    async def handler(connection: Connection) -> None:
        arrived.append(await connection.request())
        await connection.write(OK)

    fate = await street.visit(street.house(), handler, **row)
    assert (fate.status, fate.attempts, fate.failed) == ("done", 1, [])
    [(head, sent)] = arrived
    assert sent == expected
    assert f"\r\nContent-Type: {sent_as}\r\n".encode() in head
    assert signed(head, expected)


@pytest.mark.parametrize("payload", JSON.values(), ids=JSON)
async def test_json_arrives_letter_for_letter(street: Street, payload: str) -> None:
    await arrives(street, payload.encode(), "application/json", payload=payload)


@pytest.mark.parametrize("body", BYTES.values(), ids=BYTES)
async def test_bytes_arrive_byte_for_byte(street: Street, body: bytes) -> None:
    await arrives(street, body, "image/x-raw", body=body, content_type="image/x-raw")
