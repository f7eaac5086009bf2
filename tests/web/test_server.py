"""What anybody who reaches the port may do to the replica: nothing."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from relay.web.server import build, serve
from tests.web.site import Site

MIB = 1 << 20


async def test_a_head_without_end_is_cut_off() -> None:
    application = build([Route("/", lambda _: PlainTextResponse("ok"))])
    async with serve(application, host="127.0.0.1", port=0) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: relay\r\n")
        with pytest.raises(ConnectionError):
            await _add_headers(writer, 64 * MIB)
        writer.close()


async def _add_headers(writer: asyncio.StreamWriter, size: int) -> None:
    for _ in range(size // 60_000):
        writer.write(b"X: " + b"x" * 60_000 + b"\r\n")
        await writer.drain()


async def test_who_leaves_in_the_middle_of_a_form_is_no_fault_of_ours(
    dashboard: Site, caplog: pytest.LogCaptureFixture
) -> None:
    host = dashboard.origin.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(f"POST /admin/login HTTP/1.1\r\nHost: {host}\r\nOrigin: {dashboard.origin}\r\n".encode())
    writer.write(b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
    # Its handler has begun to read.
    assert b"100" in await reader.readline()
    writer.close()
    async with dashboard.browser() as browser:
        await browser.get("/admin/login")
    assert [record.message for record in caplog.records] == []
