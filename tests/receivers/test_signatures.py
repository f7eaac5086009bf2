"""What arrives verifies with the public libraries, in Python and in JavaScript."""

import base64
import hashlib
import hmac

import pytest

from relay.rules.signing import secret_bytes, signature
from tests.receivers.street import NEW_SECRET, Street
from tests.receivers.test_payloads import JSON
from tests.receivers.verifiers import Delivery, Verified, javascript, python
from tests.sender.receiver import OK, Connection, Handler
from tests.service.replica import SECRET

LIBRARIES = pytest.mark.parametrize("verified", [python, javascript])

# The libraries' own published example.
SECRET_OF_THE_LIBRARIES = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, TIMESTAMP_S, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

# The specification publishes what is signed, but not the secret of its example.
CONTENT_OF_THE_SPECIFICATION = (
    b'msg_2KWPBgLlAfxdpx2AI54pPJ85f4W.1674087231.{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z",'
    b'"data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}'
)


def recording(arrived: list[Delivery], *answers: bytes) -> Handler:
    """Keep what arrives; give each answer once, and the last one for ever."""
    left = list(answers)

    async def handler(connection: Connection) -> None:
        head, body = await connection.request()
        lines = head.decode("ascii").split("\r\n")[1:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        arrived.append(Delivery(SECRET, headers, body))
        await connection.write(left.pop(0) if len(left) > 1 else left[0])

    return handler


def known(delivery: Delivery, secret: str = SECRET, *, now_s: float | None = None) -> Delivery:
    """The same at a receiver that knows another secret, or whose clock shows another time."""
    return Delivery(secret, delivery.headers, delivery.body, delivery.now_s if now_s is None else now_s)


@LIBRARIES
def test_the_published_example_is_reproduced_and_verifies(verified: Verified) -> None:
    ours = signature([secret_bytes(SECRET_OF_THE_LIBRARIES)], ID, TIMESTAMP_S, BODY)
    assert ours == SIGNATURE
    headers = {"webhook-id": ID, "webhook-timestamp": str(TIMESTAMP_S), "webhook-signature": ours}
    assert verified([Delivery(SECRET_OF_THE_LIBRARIES, headers, BODY, TIMESTAMP_S)]) == [True]


def test_what_is_signed_of_the_example_in_the_specification_is_what_it_prints() -> None:
    key, timestamp_s, body = CONTENT_OF_THE_SPECIFICATION.split(b".", 2)
    secret = bytes(range(32))
    digest = hmac.digest(secret, CONTENT_OF_THE_SPECIFICATION, hashlib.sha256)
    assert signature([secret], key.decode(), int(timestamp_s), body) == "v1," + base64.b64encode(digest).decode()


@LIBRARIES
async def test_every_payload_verifies_as_it_arrives_and_no_other_one_does(street: Street, verified: Verified) -> None:
    arrived: list[Delivery] = []
    house = street.house()
    payloads = {**JSON, "spaces only inside a text": '"  "'}
    for payload in payloads.values():
        assert (await street.visit(house, recording(arrived, OK), payload=payload)).status == "done"
    assert [each.body.decode() for each in arrived] == list(payloads.values())
    assert verified(arrived) == [True] * len(payloads)
    rewritten = [Delivery(SECRET, each.headers, each.body + b" ") for each in arrived]
    assert verified(rewritten) == [False] * len(payloads)


@LIBRARIES
async def test_bytes_that_are_text_verify_too(street: Street, verified: Verified) -> None:
    arrived: list[Delivery] = []
    house = street.house()
    for body in (b"", b"\0", "Grüße, 🦄\r\n".encode(), b"\xef\xbb\xbf{}"):
        handler = recording(arrived, OK)
        assert (await street.visit(house, handler, body=body, content_type="text/plain")).status == "done"
    # Bodies that are not UTF-8 are more than these libraries can take; test_payloads verifies those by hand.
    assert verified(arrived) == [True] * 4


@LIBRARIES
async def test_while_a_secret_is_replaced_receivers_with_either_one_verify(street: Street, verified: Verified) -> None:
    arrived: list[Delivery] = []
    assert (await street.visit(street.house("rotating"), recording(arrived, OK))).status == "done"
    [delivery] = arrived
    assert delivery.headers["webhook-signature"].count("v1,") == 2
    stranger = "whsec_" + base64.b64encode(b"a secret that nobody was told of").decode()
    assert verified([known(delivery, secret) for secret in (SECRET, NEW_SECRET, stranger)]) == [True, True, False]


@LIBRARIES
async def test_a_late_attempt_verifies_because_it_is_signed_anew(street: Street, verified: Verified) -> None:
    arrived: list[Delivery] = []
    handler = recording(arrived, b"HTTP/1.1 500 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", OK)
    assert (await street.visit(street.house("later"), handler, max_attempts=2)).status == "done"
    first, second = arrived
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
    assert int(second.headers["webhook-timestamp"]) > int(first.headers["webhook-timestamp"])
    assert verified([first, second]) == [True, True]
    # Five minutes after the second one, a receiver still accepts it, and would refuse the first one's signature.
    clock_s = float(second.headers["webhook-timestamp"]) + 300
    assert verified([known(first, now_s=clock_s), known(second, now_s=clock_s)]) == [False, True]
