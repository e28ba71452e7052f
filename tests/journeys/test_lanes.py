"""A throttled link: its rate as the line counts it, and what is urgent past a backlog."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.traffic import TrafficSink, TrafficSource
from tests.waiting import until
from wan_proxy import DSL_BRANCH, METRO, LineCondition

pytestmark = [pytest.mark.live, pytest.mark.slow]

PAIR = ("paris", "tokyo")
LINK = {"from": "paris", "to": "tokyo", "both": False}
LANES = ["urgent", "normal", "bulk"]
ONE_WAY = {"from": ["paris"], "to": ["tokyo"]}
EXCHANGES = [
    {"name": "alarms", "lane": "urgent", **ONE_WAY},
    {"name": "orders", **ONE_WAY},
    {"name": "files", "lane": "bulk", **ONE_WAY},
]
BACKLOG, SIZE = 100_000, 600


class Flow:
    """What is published to one exchange in Paris, and comes to Tokyo."""

    def __init__(self, mesh: LiveMesh, exchange: str) -> None:
        self.source = TrafficSource(mesh.uri("paris"), "paris", exchange)
        self.sink = TrafficSink(mesh.uri("tokyo"), "tokyo", exchange, queue=f"sink.{exchange}")

    @property
    def arrived(self) -> int:
        return len(self.sink.arrived)

    @property
    def is_whole(self) -> bool:
        return not self.sink.missing_of(self.source)

    def in_order_and_once(self) -> bool:
        numbers = [message.number for message in self.sink.arrived]
        return numbers == sorted(set(numbers)) and not any(m.flagged for m in self.sink.arrived)


async def urgent_delays_s(alarms: Flow, for_s: float) -> list[float]:
    """Of one message after the other: from before it is published to when it has come."""
    began = time.monotonic()
    delays: list[float] = []
    while time.monotonic() < began + for_s:
        at = time.monotonic()
        await alarms.source.publish(1)
        await until(lambda: alarms.is_whole, "an urgent message comes", 30, every_s=0.002)
        delays.append(time.monotonic() - at)
    return delays


@pytest.mark.parametrize(
    ("condition", "max_rate", "rate"),
    [
        pytest.param(
            METRO,
            "2Mbit/s",
            250_000,
            id="far below what the line carries",
            marks=pytest.mark.long,
        ),
        pytest.param(DSL_BRANCH, "1800kbit/s", 225_000, id="a tenth below", marks=pytest.mark.long),
    ],
)
async def test_urgent_messages_pass_a_backlog_on_a_throttled_link_that_keeps_its_rate(
    live_mesh: MeshFactory, condition: LineCondition, max_rate: str, rate: int
) -> None:
    mesh = await live_mesh(
        *PAIR,
        wan={PAIR: condition},
        topology="custom",
        links=[dict(LINK)],
        lanes=LANES,
        max_rate=max_rate,
        exchanges=EXCHANGES,
    )
    line = mesh.lines[PAIR]
    alarms, orders, files = flows = [Flow(mesh, one["name"]) for one in EXCHANGES]
    for flow in flows:
        await flow.sink.start()
    mesh.start_each()
    await mesh.running()
    await files.source.publish(BACKLOG, size=SIZE, chunk=1000)
    # What was saved up, and what a change of the load brings, is over.
    await until(lambda: files.arrived > 500, "bulk moves", 60)

    carried, moved = line.statistics().outward.bytes_delivered, files.arrived
    began = time.monotonic()
    delays, _ = await asyncio.gather(
        urgent_delays_s(alarms, 20.0), orders.source.publish(100, per_second=5, chunk=1)
    )
    seconds = time.monotonic() - began
    carried = line.statistics().outward.bytes_delivered - carried
    moved = files.arrived - moved
    delays.sort()
    told = (
        f"{len(delays)} urgent: median {delays[len(delays) // 2] * 1000:.0f} ms, 99th of 100"
        f" {delays[len(delays) * 99 // 100] * 1000:.0f} ms; {carried / seconds / rate:.4f} of the"
        f" rate over {seconds:.1f} s; {moved / seconds:.0f} bulk messages a second,"
        f" {BACKLOG - files.arrived} of them still wait"
    )
    print(told)
    assert carried / seconds == pytest.approx(rate, rel=0.05), told
    assert delays[len(delays) * 99 // 100] < 1.0, told
    assert moved * SIZE > 0.7 * seconds * rate, told
    assert BACKLOG - files.arrived > BACKLOG / 2, told

    (link,) = [one for one in (await mesh.status())["links"] if one["from"] == "paris"]
    assert link["state"] == "lagging"
    assert {name: one["state"] for name, one in link["lanes"].items()} == {
        "urgent": "running",
        "normal": "running",
        "bulk": "lagging",
    }
    # A rate that is gone is so at once, and within the session.
    await mesh.change(max_rate="unlimited")
    if condition is METRO:  # the other would take minutes
        await until(lambda: all(flow.is_whole for flow in flows), mesh.logs, 120)
    assert all(flow.in_order_and_once() for flow in flows)
    (link,) = [one for one in (await mesh.status())["links"] if one["from"] == "paris"]
    assert link["sessions"] == len(LANES)
    for flow in flows:
        await flow.sink.close()


async def test_a_mesh_that_gets_lanes_and_loses_them_under_traffic_loses_and_repeats_nothing(
    live_mesh: MeshFactory,
) -> None:
    plain = [{"name": one["name"], **ONE_WAY} for one in EXCHANGES]
    mesh = await live_mesh(*PAIR, topology="custom", links=[dict(LINK)], exchanges=plain)
    flows = [Flow(mesh, one["name"]) for one in EXCHANGES]
    for flow in flows:
        await flow.sink.start()
    mesh.start_each()
    await mesh.running()
    over = asyncio.Event()

    async def publish(flow: Flow) -> None:
        while not over.is_set():
            await flow.source.publish(50, per_second=200)

    publishing = [asyncio.create_task(publish(flow)) for flow in flows]
    try:
        for lanes, exchanges, max_rate in (
            (LANES, EXCHANGES, "10Mbit/s"),
            (["urgent", "normal"], EXCHANGES[:2] + plain[2:], "unlimited"),
            (None, plain, None),
        ):
            seen = [flow.arrived for flow in flows]
            changed = {"lanes": lanes, "exchanges": exchanges, "max_rate": max_rate}
            mesh.document = {
                name: value
                for name, value in {**mesh.document, **changed}.items()
                if value is not None
            }
            await mesh.change()
            await until(
                lambda seen=seen: all(
                    flow.arrived > before + 100 for flow, before in zip(flows, seen, strict=True)
                ),
                mesh.logs,
                60,
            )
    finally:
        over.set()
        await asyncio.gather(*publishing)
    await until(lambda: all(flow.is_whole for flow in flows), mesh.logs, 60)
    for flow in flows:
        numbers = [message.number for message in flow.sink.arrived]
        assert len(numbers) == len(set(numbers))
        await flow.sink.close()
    # This one was in the normal lane all the time.
    assert flows[1].in_order_and_once()
