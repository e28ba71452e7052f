"""The admin port: what it answers, and that nobody who asks holds up the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from relay.admin.access import AdminUnavailable
from relay.admin.admin import CLOSE_WITHIN_S, MOST_BYTES, Admin, AdminServer, prometheus_text

REPORT = {
    "pid": 1,
    "sites": {"paris": {"state": "running", "delivered": 7, "core": "native"}},
    "links": [
        {"from": "paris", "to": "tokyo", "state": "down", "lag_messages": 3},
        {
            "from": "tokyo",
            "to": "paris",
            "state": "lagging",
            "clock_ahead_ms": None,
            "sent": 5,
            "lanes": {"normal": {"state": "running", "sent": 3}, "bulk": {"sent": 2}},
        },
    ],
}


async def test_it_answers_health_status_and_metrics() -> None:
    admin = Admin(lambda: REPORT)
    port = await admin.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/health")).status == 200
        assert await (await client.get("/status")).json() == REPORT
        metrics = (await (await client.get("/metrics")).text()).splitlines()
    assert 'isthmus_site_delivered{site="paris"} 7' in metrics
    assert 'isthmus_site_up{site="paris",state="running"} 1' in metrics
    assert 'isthmus_site_native_core{site="paris"} 1' in metrics
    assert 'isthmus_link_up{from="paris",to="tokyo",state="down"} 0' in metrics
    # One that lags carries what it should.
    assert 'isthmus_link_up{from="tokyo",to="paris",state="lagging"} 1' in metrics
    assert 'isthmus_link_sent{from="tokyo",to="paris"} 5' in metrics
    assert 'isthmus_lane_sent{from="tokyo",to="paris",lane="bulk"} 2' in metrics
    assert 'isthmus_lane_up{from="tokyo",to="paris",lane="normal",state="running"} 1' in metrics
    await admin.close()


SLOT = {"epoch": 3, "rows": 1200, "waiting_bytes": 9, "journal_away_s": None}


@pytest.mark.parametrize(
    ("figures", "lines"),
    [
        ({}, set()),
        (
            {"takeovers": 1, "slot": SLOT},
            {
                *('isthmus_site_takeovers{site="paris"} 1', 'isthmus_slot_held{site="paris"} 1'),
                *('isthmus_slot_epoch{site="paris"} 3', 'isthmus_slot_rows{site="paris"} 1200'),
                'isthmus_slot_waiting_bytes{site="paris"} 9',
                'isthmus_slot_journal_away_s{site="paris"} 0',
            },
        ),
        (
            {"takeovers": 0, "copy": {"row": 1199, "followed_s": 0.2}},
            {
                *('isthmus_site_takeovers{site="paris"} 0', 'isthmus_slot_held{site="paris"} 0'),
                'isthmus_copy_row{site="paris"} 1199',
                'isthmus_copy_followed_s{site="paris"} 0.2',
            },
        ),
        (
            {"takeovers": 0, "copy": {"row": None, "followed_s": None}},
            {'isthmus_site_takeovers{site="paris"} 0', 'isthmus_slot_held{site="paris"} 0'},
        ),
    ],
)
def test_a_node_among_several_has_metrics_of_slot_and_copy(
    figures: dict[str, object], lines: set[str]
) -> None:
    text = prometheus_text({"sites": {"paris": figures}, "links": []})
    assert set(filter(None, text.splitlines())) == lines


def test_slots_that_nodes_share_have_metrics_each() -> None:
    copy = {"takeovers": 0, "copy": {"row": 1199, "followed_s": 0.2}}
    figures = {"takeovers": 1, "slots": [{"takeovers": 1, "slot": SLOT}, copy]}
    text = prometheus_text({"sites": {"paris": figures}, "links": []})
    assert {
        'isthmus_slot_held{site="paris",slot="0"} 1',
        'isthmus_slot_held{site="paris",slot="1"} 0',
        'isthmus_slot_rows{site="paris",slot="0"} 1200',
        'isthmus_copy_row{site="paris",slot="1"} 1199',
    } <= set(text.splitlines())


def test_the_metrics_say_how_long_the_journal_has_been_away() -> None:
    figures = {"takeovers": 1, "slot": {**SLOT, "journal_away_s": 12.5}}
    text = prometheus_text({"sites": {"paris": figures}, "links": []})
    assert 'isthmus_slot_journal_away_s{site="paris"} 12.5' in text.splitlines()


async def test_a_connection_that_is_kept_does_not_hold_up_the_end() -> None:
    admin = Admin(lambda: REPORT)
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
    await Admin(lambda: REPORT).close()


@pytest.fixture
async def local() -> AsyncIterator[str]:
    """The address of an admin port on loopback, with a route that changes something."""

    def extend(app: web.Application) -> None:
        async def taken(request: web.Request) -> web.Response:
            return web.json_response(len(await request.read()))

        app.router.add_post("/change", taken)

    admin = Admin(lambda: REPORT, extend=extend)
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
        await Admin(lambda: REPORT, host="0.0.0.0").start()


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
