"""What is said of a link on real brokers; `gap` is reached in `test_gaps`, `down` by a cut line in
`test_status_from_afar`.
"""

from __future__ import annotations

from typing import Any

import pytest

from federation.names import Names
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.supervised_mesh import isthmus
from tests.live_brokers import rabbitmqctl
from wan_proxy import LineCondition

PAIR = ("paris", "tokyo")


async def becomes(mesh: LiveMesh, state: str | tuple[str, ...]) -> dict[str, Any]:
    """The link from paris to tokyo, once it is said to be this, or one of these."""

    def is_so(told: dict[str, Any]) -> dict[str, Any] | None:
        (link,) = [one for one in told["links"] if (one["from"], one["to"]) == PAIR]
        return link if link["state"] in ((state,) if isinstance(state, str) else state) else None

    link: dict[str, Any] = await mesh.until_told(is_so, f"it is {state}")
    return link


async def one_way(live_mesh: MeshFactory, dial: str) -> LiveMesh:
    """From paris to tokyo, with 100 messages there. `dial`: at whose broker the link meets."""
    links = [{"from": "paris", "to": "tokyo", "dial": dial}]
    orders = {"name": "orders", "from": ["paris"], "to": ["tokyo"]}
    mesh = await live_mesh(
        *PAIR, own=("tokyo",), topology="custom", links=links, exchanges=[orders]
    )
    await mesh.listen(["tokyo"])
    mesh.start_each()
    await becomes(mesh, "running")
    await mesh.source("paris").publish(100)
    await mesh.arrived()
    return mesh


async def log_of_tokyo(mesh: LiveMesh, what: str) -> None:
    """`suspend` or `resume` what writes the stream: connections live, and nothing is confirmed."""
    vhost = mesh.vhosts["tokyo"]
    log = f'rabbit_misc:r(<<"{vhost.name}">>, queue, <<"{Names(mesh.mesh.name).log}">>)'
    order = (
        f"{{ok, Q}} = rabbit_amqqueue:lookup({log}), "
        f"Pid = maps:get(leader_pid, amqqueue:get_type_state(Q)), sys:{what}(Pid)."
    )
    await rabbitmqctl(vhost.broker, "eval", order)


@pytest.mark.long
async def test_a_link_whose_broker_takes_no_publishes_is_blocked(live_mesh: MeshFactory) -> None:
    mesh = await one_way(live_mesh, "to")
    broker = mesh.vhosts["tokyo"].broker
    # Small enough for an alarm at once, and not 0, which would mean "no publishing at all".
    await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.00001")
    await mesh.source("paris").publish(100)
    link = await becomes(mesh, "blocked")
    assert link["lag_messages"] == 100
    await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.4")
    await becomes(mesh, "running")
    await mesh.arrived()


@pytest.mark.long
async def test_a_link_that_silently_forwards_nothing_is_not_green_for_longer_than_a_minute(
    live_mesh: MeshFactory,
) -> None:
    mesh = await one_way(live_mesh, "from")
    await log_of_tokyo(mesh, "suspend")
    await mesh.source("paris").publish(100)
    link = await becomes(mesh, "lagging")
    assert link["lag_messages"] == 100
    # Whichever comes first: half a minute, or that tokyo's node finds its log gone.
    link = await becomes(mesh, ("stalled", "down"))
    assert link["lag_messages"] == 100
    assert link["reason"]
    await log_of_tokyo(mesh, "resume")
    await becomes(mesh, "running")
    await mesh.arrived()


@pytest.mark.long
async def test_nor_is_one_over_which_nothing_is_sent(live_mesh: MeshFactory) -> None:
    mesh = await one_way(live_mesh, "from")
    before = await becomes(mesh, "running")

    def has_canary(told: dict[str, Any]) -> bool:
        (link,) = [one for one in told["links"] if (one["from"], one["to"]) == PAIR]
        return link["acked"] > before["acked"] and link["acked_messages"] == 100

    await mesh.until_told(has_canary, "a canary has come back")
    await log_of_tokyo(mesh, "suspend")
    link = await becomes(mesh, ("stalled", "down"))
    assert link["lag_messages"] == 0
    assert link["reason"]
    await log_of_tokyo(mesh, "resume")
    await becomes(mesh, "running")
    await mesh.source("paris").publish(100)
    await mesh.arrived()


@pytest.mark.long
async def test_a_link_over_a_thin_line_lags_and_one_that_is_held_back_is_paused(
    live_mesh: MeshFactory,
) -> None:
    thin = LineCondition.both_ways(rate_bits_per_s=128_000)
    mesh = await live_mesh(*PAIR, wan={PAIR: thin}, topology="complete")
    mesh.start_each()
    link = await becomes(mesh, "running")
    assert link["clock_ahead_ms"] is None or abs(link["clock_ahead_ms"]) < 1000
    for _ in range(25):
        await mesh.source("paris").publish(10, size=2048)
    link = await becomes(mesh, "lagging")
    assert link["lag_messages"] > 0
    assert "has waited" in link["reason"]
    # It gets there, and everything counts as running meanwhile.
    await mesh.running()
    await becomes(mesh, "running")
    code, said = await isthmus(mesh, "pause", "--link", "paris-tokyo")
    assert code == 0, said
    await becomes(mesh, "paused")
    code, said = await isthmus(mesh, "resume", "--link", "paris-tokyo")
    assert code == 0, said
    link = await becomes(mesh, "running")
    # Measured over the link, by one machine's clock.
    await mesh.until_told(
        lambda told: all(
            one["clock_ahead_ms"] is not None and abs(one["clock_ahead_ms"]) < 1000
            for one in told["links"]
        ),
        "the clocks are known to agree",
    )
    assert mesh.stop("tokyo") == 0
    link = await becomes(mesh, "down")
    assert "nobody there" in link["reason"]


@pytest.mark.long
async def test_a_link_starts_and_is_stalled_while_one_batch_takes_longer_than_it_may(
    live_mesh: MeshFactory,
) -> None:
    very_thin = LineCondition.both_ways(rate_bits_per_s=16_000)
    mesh = await live_mesh(*PAIR, wan={PAIR: very_thin}, topology="complete")
    await mesh.listen(["tokyo"])
    mesh.start_each()
    link = await becomes(mesh, "starting")
    assert link["reason"] == ""
    await becomes(mesh, "running")
    await mesh.source("paris").publish(1, size=100_000)  # 50 s of the line
    link = await becomes(mesh, "stalled")
    assert link["lag_messages"] == 1
    assert "is heard" in link["reason"]
    await becomes(mesh, "running")
    await mesh.arrived()
