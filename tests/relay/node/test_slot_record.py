"""States that are of other slots than the mesh file's are not begun with."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.slots import ONE_SLOT, SlotMap
from relay.node.site_folder import SLOT_MAP, STATE
from relay.node.slot_record import keep_slots
from relay.node.start import NodeStopped

FOUR = SlotMap(4, {"orders": 2})


def test_a_new_site_may_have_any_slots_and_has_them_from_then_on(tmp_path: Path) -> None:
    folder = tmp_path / "sites" / "paris"
    keep_slots(folder, "paris", FOUR)
    keep_slots(folder, "paris", FOUR)
    for other in (ONE_SLOT, SlotMap(8, {"orders": 2}), SlotMap(4, {"orders": 1})):
        with pytest.raises(
            NodeStopped, match=r"its states in .* are of 4 slots .orders in 2.: put"
        ):
            keep_slots(folder, "paris", other)


def test_a_site_that_has_run_with_one_slot_is_not_cut(tmp_path: Path) -> None:
    keep_slots(tmp_path, "paris", ONE_SLOT)
    assert not (tmp_path / SLOT_MAP).exists()
    (tmp_path / STATE).mkdir()
    keep_slots(tmp_path, "paris", ONE_SLOT)
    with pytest.raises(NodeStopped, match=r"into 4 slots .* are of one slot: put"):
        keep_slots(tmp_path, "paris", FOUR)


@pytest.mark.parametrize("content", ["", "[]", '{"count": "x", "place": {}}', "{}"])
def test_a_damaged_record_stops_the_node(tmp_path: Path, content: str) -> None:
    (tmp_path / SLOT_MAP).write_text(content)
    with pytest.raises(NodeStopped, match="cannot be read"):
        keep_slots(tmp_path, "paris", FOUR)
