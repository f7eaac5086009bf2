"""The receivers' page: its table of headers is what arrives, and its snippets do what they say."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.model import Destination, Job
from relay.ping import TOPIC
from relay.rules.request import headers
from relay.rules.signing import secret_bytes
from tests.docs.pages import inline_code, snippet, table, text
from tests.docs.wire import JOB, deliver

PAGE = "docs/receivers.md"
SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes, yes").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of thirty-two byte").decode()
DESTINATION = Destination("billing", "https://billing.example/hooks", secrets=(secret_bytes(SECRET),))

Verified = Callable[[list[str], dict[str, str], bytes], bool]


def _python(name: str) -> Verified:
    names: dict[str, Any] = {}
    exec(snippet(PAGE, name), names)  # noqa: S102 - the page is ours
    found: Verified = names["verified"]
    return found


def _javascript(tmp_path: Path) -> Verified:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    module = tmp_path / "verified.mjs"
    # No built-in fetches anything here: the module has nothing but node:crypto.
    module.write_text(snippet(PAGE, "javascript"))
    program = (
        f"import {{ verified }} from {json.dumps(module.as_uri())};"
        "import { readFileSync } from 'node:fs';"
        "const { secrets, headers, body } = JSON.parse(readFileSync(0, 'utf8'));"
        "console.log(verified(secrets, headers, Buffer.from(body, 'base64')));"
    )

    def verified(secrets: list[str], headers: dict[str, str], body: bytes) -> bool:
        given = json.dumps({"secrets": secrets, "headers": headers, "body": base64.b64encode(body).decode()})
        done = subprocess.run(
            [node, "--input-type=module", "--eval", program],
            input=given, capture_output=True, check=True, text=True, timeout=60,
        )  # fmt: skip
        answer: bool = json.loads(done.stdout)
        return answer

    return verified


@pytest.fixture(params=["python library", "python by hand", "javascript"])
def verified(request: pytest.FixtureRequest, tmp_path: Path) -> Verified:
    """The function of one snippet."""
    return _javascript(tmp_path) if request.param == "javascript" else _python(request.param)


def _signed(job: Job = JOB, destination: Destination = DESTINATION, *, age_s: int = 0) -> dict[str, str]:
    return {name.lower(): value for name, value in headers(job, destination, int(time.time()) - age_s)}


async def test_a_delivery_as_it_arrives_verifies(verified: Verified) -> None:
    arrived = await deliver(JOB, DESTINATION)
    assert verified([SECRET], arrived.lower, arrived.body) is True


def test_a_delivery_verifies_with_either_secret_while_one_replaces_the_other(verified: Verified) -> None:
    rotating = replace(DESTINATION, secrets=(secret_bytes(OTHER), secret_bytes(SECRET)))
    assert verified([SECRET], _signed(destination=rotating), JOB.body) is True
    assert verified([OTHER], _signed(destination=rotating), JOB.body) is True
    assert verified([OTHER, SECRET], _signed(), JOB.body) is True


def test_a_wrong_secret_is_refused(verified: Verified) -> None:
    assert verified([OTHER], _signed(), JOB.body) is False


def test_a_body_that_was_parsed_and_written_again_is_refused(verified: Verified) -> None:
    assert verified([SECRET], _signed(), json.dumps(json.loads(JOB.body)).encode()) is False


def test_another_key_is_refused(verified: Verified) -> None:
    assert verified([SECRET], {**_signed(), "webhook-id": "another"}, JOB.body) is False


@pytest.mark.parametrize("age_s", [330, -330])
def test_a_timestamp_more_than_five_minutes_away_is_refused(verified: Verified, age_s: int) -> None:
    assert verified([SECRET], _signed(age_s=age_s), JOB.body) is False


def test_a_timestamp_of_less_than_five_minutes_ago_is_accepted(verified: Verified) -> None:
    assert verified([SECRET], _signed(age_s=240), JOB.body) is True


@pytest.mark.parametrize("signature", ["", "v1,", "v1,bm90IHRoaXM=", "v2,bm90IHRoaXM="])
def test_a_signature_that_is_none_is_refused(verified: Verified, signature: str) -> None:
    assert verified([SECRET], {**_signed(), "webhook-signature": signature}, JOB.body) is False


def test_a_delivery_without_a_signature_is_refused(verified: Verified) -> None:
    assert verified([SECRET], _signed(destination=replace(DESTINATION, secrets=())), JOB.body) is False


@pytest.mark.parametrize("name", ["python by hand", "javascript"])
def test_a_body_that_is_not_text_verifies_without_the_library(tmp_path: Path, name: str) -> None:
    binary = replace(JOB, body=bytes(range(256)))
    verified = _javascript(tmp_path) if name == "javascript" else _python(name)
    assert verified([SECRET], _signed(binary), binary.body) is True


async def test_the_table_of_headers_has_what_arrives_in_the_order_in_which_it_arrives() -> None:
    everything = replace(
        JOB,
        headers={"X-Row": "1"},
        redrive=True,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate="vendor=1",
    )
    arrived = await deliver(everything, replace(DESTINATION, headers=(("X-Destination", "1"),)))
    listed = [inline_code(row[0]) or ["X-Destination", "X-Row"] for row in table(PAGE, "header")]
    assert [name for name, _ in arrived.headers] == [name for names in listed for name in names]


def test_the_page_names_the_topic_of_test_deliveries() -> None:
    assert TOPIC in inline_code(text(PAGE))
