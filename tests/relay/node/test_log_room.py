"""When a log that may take only so much disk has no room for the site's own messages."""

from __future__ import annotations

import pytest

from federation.mesh import LogLimit, WhenLogIsFull
from relay.node.watch import LogRoom

BLOCKING = LogLimit(1000, WhenLogIsFull.BLOCK)
GAPPING = LogLimit(1000, WhenLogIsFull.GAP)


def test_it_blocks_before_the_log_is_full_and_goes_on_well_below() -> None:
    room = LogRoom()
    looks = [(needed, room.look(BLOCKING, needed), room.blocks) for needed in (0, 899, 900, 950)]
    assert looks == [(0, False, False), (899, False, False), (900, True, True), (950, False, True)]
    assert room.report_line("tokyo") == "95% of the log's max_bytes wait for tokyo"
    assert not room.look(BLOCKING, 700)
    assert room.blocks
    assert room.look(BLOCKING, 699)
    assert not room.blocks


def test_from_four_fifths_on_it_is_said() -> None:
    room = LogRoom()
    room.look(BLOCKING, 799)
    assert room.report_line("tokyo") == ""
    room.look(BLOCKING, 800)
    assert room.report_line("tokyo").startswith("80%")


@pytest.mark.parametrize("limit", [GAPPING, LogLimit()])
def test_with_gap_or_without_a_limit_it_never_blocks(limit: LogLimit) -> None:
    room = LogRoom()
    assert not room.look(limit, 10**12)
    assert not room.blocks


def test_a_limit_that_is_lifted_lets_it_go_on_at_once() -> None:
    room = LogRoom()
    room.look(BLOCKING, 1000)
    assert room.look(LogLimit(), 1000)
    assert not room.blocks
    assert room.look(BLOCKING, 1000)
    assert room.look(GAPPING, 1000)
