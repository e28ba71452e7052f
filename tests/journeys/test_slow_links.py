"""Slow lines, cut while a window is under way: what they carry arrives all the same, once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.journeys.conftest import MeshFactory
from tests.journeys.traffic import until
from wan_proxy import DSL_BRANCH, ISDN_64K, LineCondition

PAIR = ("paris", "tokyo")
SIZE = 1024


@pytest.mark.parametrize(
    ("condition", "count", "forget"),
    [
        pytest.param(ISDN_64K, 60, True, id="64 kbit/s"),
        pytest.param(DSL_BRANCH, 1000, True, id="2 Mbit/s"),
        pytest.param(ISDN_64K, 1500, False, id="64 kbit/s, long", marks=pytest.mark.long),
        pytest.param(DSL_BRANCH, 20_000, False, id="2 Mbit/s, long", marks=pytest.mark.long),
    ],
)
async def test_a_slow_line_cut_in_mid_window_drains(
    live_mesh: MeshFactory, condition: LineCondition, count: int, forget: bool
) -> None:
    mesh = await live_mesh(*PAIR, wan={PAIR: condition}, topology="complete")
    await mesh.listen(["tokyo"])
    mesh.start_each()
    await mesh.running()
    source, sink, line = mesh.source("paris"), mesh.sinks["tokyo"], mesh.lines[PAIR]
    await source.publish(count, size=SIZE)
    begin = line.statistics().outward.bytes_delivered
    await until(
        lambda: line.statistics().outward.bytes_delivered > begin + count * SIZE // 3,
        lambda: f"{line.statistics()}\n{mesh.logs()}",
        600,
    )
    assert sink.missing_of(source)
    line.cut(forget=forget)
    if not forget:
        # Nothing tells the sender, and it is slow to lose patience with a slow line.
        await mesh.until_told(
            lambda told: told["links"][0]["state"] == "down", "down", within_s=600
        )
    await source.publish(20, size=SIZE)
    line.heal()
    await mesh.arrived(within_s=900)
    mesh.check(most_flags=0)
    link = the_link(await mesh.status())
    assert sum(link["ends"].values()) >= 1, link


def the_link(told: dict[str, Any]) -> dict[str, Any]:
    """The link over the slow line, in a status."""
    return next(link for link in told["links"] if (link["from"], link["to"]) == PAIR)
