"""What an operator holds back at a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.operator.hold_watch import HoldWatch
from relay.operator.holds import (
    HOLDS_FILE,
    Holds,
    HoldsBroken,
    mark_drained,
    read_holds,
    was_drained,
    write_holds,
)

HELD = Holds(paused=True, links=frozenset({"a-b", "a-c"}))


def test_what_was_written_is_read_and_nothing_is_held_before(tmp_path: Path) -> None:
    folder = tmp_path / "sites" / "a"
    assert read_holds(folder) == Holds()
    write_holds(folder, HELD)
    assert read_holds(folder) == HELD


@pytest.mark.parametrize("said", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "links": 3}'])
def test_a_damaged_file_is_said_with_what_to_do(tmp_path: Path, said: str) -> None:
    (tmp_path / HOLDS_FILE).write_text(said)
    with pytest.raises(HoldsBroken, match="delete it"):
        read_holds(tmp_path)


def test_a_watch_sees_each_change_once_and_goes_on_with_what_it_knows(tmp_path: Path) -> None:
    watch = HoldWatch(tmp_path)
    assert not watch.look()
    write_holds(tmp_path, HELD)
    assert watch.look()
    assert not watch.look()
    assert watch.present == HELD
    (tmp_path / HOLDS_FILE).write_text("{")
    assert not watch.look()
    assert HOLDS_FILE in watch.problem
    assert watch.present == HELD
    (tmp_path / HOLDS_FILE).unlink()
    assert watch.look()
    assert (watch.present, watch.problem) == (Holds(), "")


def test_word_that_a_site_is_drained_is_left_and_taken_back(tmp_path: Path) -> None:
    mark_drained(tmp_path, False)
    assert not was_drained(tmp_path)
    mark_drained(tmp_path, True)
    mark_drained(tmp_path, True)
    assert was_drained(tmp_path)
    mark_drained(tmp_path, False)
    assert not was_drained(tmp_path)
