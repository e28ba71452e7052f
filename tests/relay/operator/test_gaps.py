"""What a node writes down of its gaps, and which orders it obeys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relay.ledger.rows import Stage
from relay.log.open_gap import OpenGap
from relay.operator.gaps import SiteGaps, accept, forget_gaps, read_open_gaps

GAP = OpenGap(Stage.LINKED_OUT, "x/1", 10, 20, 1_000, link="a-b", neighbour="b")


def test_an_order_is_for_the_gap_that_was_shown_and_not_for_a_larger_one(tmp_path: Path) -> None:
    gaps = SiteGaps(tmp_path)
    gaps.load()
    gaps.found(GAP)
    assert read_open_gaps(tmp_path) == [GAP]
    assert gaps.accepted(GAP.key) is None
    accept(tmp_path, GAP, "ann@host", "today")
    accepted = gaps.accepted(GAP.key)
    assert accepted is not None
    assert (accepted.gap, accepted.by, accepted.at) == (GAP, "ann@host", "today")
    larger = replace(GAP, first=21, since_ms=5_000)
    gaps.found(larger)
    assert gaps.accepted(GAP.key) is None
    # It is the same stage at the same place: it stands for as long.
    assert read_open_gaps(tmp_path) == [replace(larger, since_ms=1_000)]


async def test_what_was_accepted_while_the_node_was_down_holds_when_it_starts(
    tmp_path: Path,
) -> None:
    SiteGaps(tmp_path).found(GAP)
    accept(tmp_path, GAP, "ann@host", "today")
    gaps = SiteGaps(tmp_path)
    gaps.load()
    accepted = gaps.accepted(GAP.key)
    assert accepted is not None
    gaps.passed(accepted)
    assert read_open_gaps(tmp_path) == []
    assert gaps.accepted(GAP.key) is None

    # A power cut may take what says that it was passed: then the order is still there.
    async def power_cut() -> None:
        raise OSError("not written")

    with pytest.raises(OSError, match="not written"):
        await gaps.forget_obeyed(power_cut)
    after = SiteGaps(tmp_path)
    after.found(GAP)
    assert after.accepted(GAP.key) is not None

    async def synced() -> None:
        return None

    await gaps.forget_obeyed(synced)
    assert not list((tmp_path / "accepted-gaps").iterdir())


def test_a_gap_to_which_the_next_run_does_not_come_is_over(tmp_path: Path) -> None:
    SiteGaps(tmp_path).found(GAP)
    gaps = SiteGaps(tmp_path)
    gaps.load()
    gaps.begun()
    assert read_open_gaps(tmp_path) == []


def test_what_cannot_be_read_is_no_order(tmp_path: Path) -> None:
    gaps = SiteGaps(tmp_path)
    gaps.found(GAP)
    accept(tmp_path, GAP, "ann@host", "today")
    (tmp_path / "accepted-gaps" / GAP.id).write_text("{}")
    assert gaps.accepted(GAP.key) is None
    (tmp_path / "gaps.json").write_text("[]")
    assert read_open_gaps(tmp_path) == []


def test_with_a_state_that_is_made_anew_its_gaps_are_forgotten(tmp_path: Path) -> None:
    SiteGaps(tmp_path).found(GAP)
    accept(tmp_path, GAP, "ann@host", "today")
    forget_gaps(tmp_path)
    assert not list(tmp_path.iterdir())
