"""The admin port: what it answers, and that nobody who asks holds up the end of the process."""

from __future__ import annotations

import asyncio

import aiohttp

from relay.node.admin import CLOSE_WITHIN_S, Admin

REPORT = {
    "pid": 1,
    "sites": {"paris": {"state": "running", "delivered": 7}},
    "links": [
        {"from": "paris", "to": "tokyo", "state": "down", "lag_messages": 3},
        {"from": "tokyo", "to": "paris", "state": "lagging", "clock_ahead_ms": None},
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
    assert 'isthmus_link_up{from="paris",to="tokyo",state="down"} 0' in metrics
    # One that lags carries what it should.
    assert 'isthmus_link_up{from="tokyo",to="paris",state="lagging"} 1' in metrics
    await admin.close()


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
