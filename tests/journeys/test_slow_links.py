"""Slow lines, cut while a window is under way: what they carry arrives all the same, once."""

from __future__ import annotations

import pytest

from tests.journeys.conftest import MeshFactory
from tests.waiting import until
from wan_proxy import DSL_BRANCH, ISDN_64K, LineCondition

pytestmark = pytest.mark.long  # a minute or more each on two busy cores

PAIR = ("paris", "tokyo")
KIB, MIB = 1024, 1024 * 1024


@pytest.mark.parametrize(
    ("condition", "count", "size", "forget"),
    [
        pytest.param(ISDN_64K, 60, KIB, True, id="64 kbit/s"),
        pytest.param(ISDN_64K, 1500, KIB, False, id="64 kbit/s, long", marks=pytest.mark.long),
        pytest.param(DSL_BRANCH, 20_000, KIB, False, id="2 Mbit/s", marks=pytest.mark.long),
        pytest.param(DSL_BRANCH, 6, 3 * MIB, True, id="2 Mbit/s, big", marks=pytest.mark.long),
    ],
)
async def test_a_slow_line_cut_in_mid_window_drains(
    listening_mesh: MeshFactory, condition: LineCondition, count: int, size: int, forget: bool
) -> None:
    # A branch behind NAT: both ways go over its one line, where acks compete with batches.
    links = [{"from": "paris", "to": "tokyo", "both": True, "dial": "to"}]
    mesh = await listening_mesh(*PAIR, wan={PAIR: condition}, topology="custom", links=links)
    line = mesh.lines[PAIR]
    await mesh.publish_everywhere(count, size=size)
    begin = line.statistics().outward.bytes_delivered
    await until(
        lambda: line.statistics().outward.bytes_delivered > begin + count * size // 3,
        lambda: f"{line.statistics()}\n{mesh.logs()}",
        600,
    )
    assert all(mesh.missing().values())
    line.cut(forget=forget)
    if not forget:
        # Nothing tells the nodes, and they are slow to lose patience with a slow line: slower
        # than the status, for which a link that is silent is down.
        await mesh.until_told(
            lambda told: all(sum(link["ends"].values()) for link in told["links"]),
            "no session outlives the cut",
            within_s=600,
        )
    await mesh.publish_everywhere(20, size=KIB)
    line.heal()
    await mesh.arrived(within_s=900)
    mesh.check(most_flags=0)
    for link in (await mesh.status())["links"]:
        assert sum(link["ends"].values()) >= 1, link
