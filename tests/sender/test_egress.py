"""The address really connected to is the one that is judged."""

import pytest

from relay.model import Answer, ErrorClass, Fault
from relay.sender import Sender
from tests.sender.receiver import HEADERS, keep_answering, receiving


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "127.1", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "[::1]"]
)
async def test_a_refused_address_gets_no_connection_in_any_spelling(sender: Sender, host: str) -> None:
    async with receiving(keep_answering) as receiver:
        destination = receiver.destination(url=f"http://{host}:{receiver.port}/", egress="public")
        result = await sender.send(destination, HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.EGRESS
    assert receiver.connections == []


async def test_the_refusal_names_the_address_and_the_policy(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        url = f"http://localhost:{receiver.port}/"
        destination = receiver.destination(url=url, egress=("10.0.0.0/8",))
        result = await sender.send(destination, HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert "localhost" in result.detail
    assert "127.0.0.1" in result.detail
    assert "10.0.0.0/8" in result.detail


async def test_the_metadata_address_is_refused_under_every_policy(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        destination = receiver.destination(url="http://169.254.169.254/latest/", egress="any")
        result = await sender.send(destination, HEADERS, b"{}")
    assert isinstance(result, Fault)
    assert result.error_class is ErrorClass.EGRESS


async def test_an_allowed_network_is_connected_to(sender: Sender) -> None:
    async with receiving(keep_answering) as receiver:
        url = f"http://localhost:{receiver.port}/"
        destination = receiver.destination(url=url, egress=("127.0.0.0/8",))
        assert isinstance(await sender.send(destination, HEADERS, b"{}"), Answer)
