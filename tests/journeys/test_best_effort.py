"""`order: best_effort` beside a full queue: only refused messages wait, also over a kill."""

from __future__ import annotations

from typing import Any

from relay.ledger.rows import OUTCOME_MASK, REDELIVERED, Outcome, Stage
from simulation.invariants import check_ledger, check_site
from tests.journeys.application import counters_say
from tests.journeys.books import as_row
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.test_stuck_flow import NEVER_GIVES_UP, ROOM, limit, no_limit
from tests.journeys.traffic import TrafficSink, TrafficSource
from tests.waiting import until

PAIR = ("paris", "tokyo")
REFUSED_ONE_IN = 4


def key_of(number: int) -> bytes:
    return b"full" if number % REFUSED_ONE_IN == 0 else b"free"


async def test_beside_a_full_queue_all_but_refused_messages_go_on_also_over_a_kill(
    live_mesh: MeshFactory,
) -> None:
    orders = {"name": "orders", "order": "best_effort", "retry": NEVER_GIVES_UP}
    mesh = await live_mesh(*PAIR, topology="complete", exchanges=[orders])
    tokyo = mesh.uri("tokyo")
    free = TrafficSink(tokyo, "tokyo", key="free", queue="free")
    full = TrafficSink(tokyo, "tokyo", key="full", queue="full")
    await free.start()
    await full.declare()
    await limit(mesh.vhosts["tokyo"], full.queue)
    mesh.start_each()
    await mesh.running()
    source = TrafficSource(mesh.uri("paris"), "paris", key=key_of)
    try:
        await source.publish(400)
        await wait_aside(mesh, source)
        await until(lambda: has_all(free, source), lambda: lacks(mesh, free, source), 60)
        # Counted as it is saved: else the kill would leave it in doubt.
        await counters_say(mesh, "tokyo", delivered=300 + ROOM, deferred=100 - ROOM)

        mesh.kill("tokyo")
        await source.publish(100)
        mesh.start(["tokyo"])
        await mesh.running()
        await source.publish(100)
        await wait_aside(mesh, source)
        await until(lambda: has_all(free, source), lambda: lacks(mesh, free, source), 60)

        await no_limit(mesh.vhosts["tokyo"], full.queue)
        full.resume()
        await until(lambda: has_all(full, source), lambda: lacks(mesh, full, source), 60)
        await mesh.until_told(
            lambda told: not told["sites"]["tokyo"]["undelivered_messages"], "all is settled"
        )
    finally:
        await free.close()
        await full.close()

    assert not source.indeterminate
    # The free queue has each message once, in order, and none flagged, kill or no kill.
    check_site("tokyo", free.arrived, {"paris": to(free, source)}, most_flags=0)
    there = to(full, source)
    flagged = check_site("tokyo", full.arrived, {"paris": there}, ordered=False)
    refused = len(there) - ROOM
    assert len(full.arrived) == len(there)
    assert flagged["paris"] == refused
    check_books(mesh, source, refused)


async def wait_aside(mesh: LiveMesh, source: TrafficSource) -> None:
    """Wait until all but the first few messages for the full queue wait aside, and no flow
    stands.
    """
    waiting = sum(key_of(number) == b"full" for number in source.confirmed) - ROOM

    def is_so(told: dict[str, Any]) -> bool:
        site = told["sites"]["tokyo"]
        return bool(site["deferred_waiting"] == waiting and not site["standing_flows"])

    await mesh.until_told(is_so, f"{waiting} messages wait aside at tokyo")


def to(sink: TrafficSink, source: TrafficSource) -> dict[int, bytes]:
    """Return the confirmed messages that are bound to a sink's queue."""
    key = sink.queue.encode()
    return {number: body for number, body in source.confirmed.items() if key_of(number) == key}


def has_all(sink: TrafficSink, source: TrafficSource) -> bool:
    sink.raise_if_failed()
    return to(sink, source).keys() <= sink.seen[source.origin]


def lacks(mesh: LiveMesh, sink: TrafficSink, source: TrafficSource) -> str:
    missing = to(sink, source).keys() - sink.seen[source.origin]
    return f"{len(missing)} missing at {sink.queue}\n{mesh.logs()}"


def check_books(mesh: LiveMesh, source: TrafficSource, refused: int) -> None:
    """Raise unless tokyo's ledger, whose node ends in order, has each message delivered once, and
    as many flagged as were refused.
    """
    assert mesh.stop("tokyo") == 0
    told = mesh.ledger("tokyo", "delivered")
    rows = [as_row(Stage.DELIVERED, one) for one in told if one["event"] == "batch"]
    paris = mesh.cluster("paris")
    count = {paris: len(source.confirmed), mesh.cluster("tokyo"): 0}
    check_ledger("tokyo", mesh.cluster("tokyo"), rows, count, count)
    outcomes = [outcome for row in rows for outcome in row.outcomes]
    assert [one & OUTCOME_MASK for one in outcomes] == [Outcome.DELIVERED] * count[paris]
    assert sum(bool(one & REDELIVERED) for one in outcomes) == refused
