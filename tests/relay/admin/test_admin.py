"""The admin port: what it answers, and that nobody who asks holds up the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from relay.admin.access import AdminUnavailable
from relay.admin.admin import CLOSE_WITHIN_S, MOST_BYTES, Admin, AdminServer
from tests.relay.admin.metrics.reports import REPORT

STATUS = {"pid": 1, "sites": {}, "links": []}


async def test_the_admin_port_answers_health_and_status() -> None:
    admin = Admin(lambda: STATUS)
    port = await admin.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/health")).status == 200
        assert await (await client.get("/status")).json() == STATUS
    await admin.close()


@pytest.mark.parametrize(
    ("query", "has_former_names"), [("", True), ("?names=both", True), ("?names=new", False)]
)
async def test_metrics_are_prometheus_text_with_the_former_names_unless_asked_for_new_ones(
    query: str, has_former_names: bool
) -> None:
    admin = Admin(lambda: STATUS, measured=lambda: REPORT)
    port = await admin.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        answer = await client.get(f"/metrics{query}")
        lines = (await answer.text()).splitlines()
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'isthmus_site_delivered_messages_total{site="paris"} 7.0' in lines
    assert ('isthmus_site_delivered{site="paris"} 7' in lines) is has_former_names
    await admin.close()


async def test_metrics_by_names_that_nobody_has_are_refused_with_the_choice() -> None:
    admin = Admin(lambda: STATUS)
    port = await admin.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        answer = await client.get("/metrics?names=old")
        assert answer.status == 400
        assert "there are both and new" in await answer.text()
    await admin.close()


async def test_a_connection_that_is_kept_does_not_hold_up_the_end() -> None:
    admin = Admin(lambda: STATUS)
    port = await admin.start()
    idle = await asyncio.open_connection("127.0.0.1", port)
    asking = await asyncio.open_connection("127.0.0.1", port)
    asking[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n")  # and never the rest
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        await (await client.get("/health")).read()  # kept alive
        async with asyncio.timeout(20 * CLOSE_WITHIN_S):
            await admin.close()
    idle[1].close()
    asking[1].close()


async def test_closing_what_never_listened_is_nothing() -> None:
    await Admin(lambda: STATUS).close()


@pytest.fixture
async def local() -> AsyncIterator[str]:
    """The address of an admin port on loopback, with a route that changes something."""

    def extend(app: web.Application) -> None:
        async def taken(request: web.Request) -> web.Response:
            return web.json_response(len(await request.read()))

        app.router.add_post("/change", taken)

    admin = Admin(lambda: STATUS, extend=extend)
    yield f"http://127.0.0.1:{await admin.start()}"
    await admin.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "evil.example"}, 403),  # whose name leads to 127.0.0.1 by now
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "10.0.0.1"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_a_page_of_elsewhere_gets_nothing_of_a_browser_here(
    local: str, headers: dict[str, str], status: int
) -> None:
    async with aiohttp.ClientSession(local, headers=headers) as client:
        assert (await client.get("/status")).status == status
        assert (await client.post("/change", data=b"x")).status == status


async def test_a_body_has_its_bounds(local: str) -> None:
    async with aiohttp.ClientSession(local) as client:
        assert (await client.post("/change", data=bytes(MOST_BYTES + 1))).status == 413


async def test_a_loopback_port_is_for_loopback_addresses() -> None:
    with pytest.raises(AdminUnavailable, match="wants TLS and a token"):
        await Admin(lambda: STATUS, host="0.0.0.0").start()


async def test_a_connection_without_a_request_is_ended() -> None:
    server = AdminServer(web.Application(), first_request_within_s=0.2)
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # and never the rest
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await server.close()


async def test_there_are_so_many_connections_and_no_more() -> None:
    server = AdminServer(web.Application(), most_connections=2)
    port = await server.start("127.0.0.1", 0)
    kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    for _, each in [*kept, (reader, writer)]:
        each.close()
    await server.close()
