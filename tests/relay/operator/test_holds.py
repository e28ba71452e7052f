"""What an operator holds back at a site."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from relay.operator.holds import (
    HOLDS_FILE,
    QUIET_LOOKS,
    Holds,
    HoldsBroken,
    HoldWatch,
    Leave,
    Leaving,
    mark_drained,
    read_holds,
    was_drained,
    write_holds,
)
from tests.virtual_time import in_virtual_time, let_pass

HELD = Holds(paused=True, links=frozenset({"a-b", "a-c"}), quiescing=True)


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


@in_virtual_time
async def test_an_order_is_obeyed_at_once_and_kept_once_what_it_wrote_is(tmp_path: Path) -> None:
    written, obeyed, is_synced = list[Path](), list[Holds](), asyncio.Event()

    async def synced() -> None:
        await is_synced.wait()

    watch = HoldWatch(tmp_path, written.append)
    running = asyncio.create_task(watch.run(lambda: obeyed.append(watch.present), synced))
    write_holds(tmp_path, HELD)
    await let_pass(3)
    assert (obeyed, written) == ([HELD], [tmp_path / HOLDS_FILE])
    assert not watch.is_kept
    write_holds(tmp_path, Holds())
    await let_pass(6)
    assert obeyed == [HELD, Holds()], "while the first is not kept yet"
    is_synced.set()
    await let_pass(6)
    assert watch.is_kept
    running.cancel()


def test_word_that_a_site_is_drained_is_left_and_taken_back(tmp_path: Path) -> None:
    mark_drained(tmp_path, False)
    assert not was_drained(tmp_path)
    mark_drained(tmp_path, True)
    mark_drained(tmp_path, True)
    assert was_drained(tmp_path)
    mark_drained(tmp_path, False)
    assert not was_drained(tmp_path)


EMPTY = Leaving(egress=0, in_hand=0, undelivered=0, unsent={"tokyo": 0}, appending=False)


def looks(leave: Leave, *views: Leaving | None) -> Leave:
    for view in views:
        leave = leave.after(view)
    return leave


def test_it_goes_on_receiving_until_its_egress_queues_are_empty() -> None:
    busy = replace(EMPTY, egress=1000, appending=True)
    leave = looks(Leave(), busy, replace(busy, egress=-1))
    assert not leave.is_closed
    assert looks(leave, replace(busy, egress=0)).is_closed


def test_once_closed_it_stays_so_though_something_is_published() -> None:
    leave = looks(Leave(), EMPTY, replace(EMPTY, egress=3))
    assert leave.is_closed
    assert leave.waiting == ("3 messages in its egress queues",)


def test_it_is_drained_when_nothing_was_in_the_way_for_a_few_looks() -> None:
    leave = looks(Leave(), EMPTY, *[EMPTY] * (QUIET_LOOKS - 1))
    assert not leave.is_drained
    assert looks(leave, EMPTY).is_drained
    assert not looks(leave, replace(EMPTY, in_hand=1), EMPTY).is_drained


def test_all_that_is_in_the_way_is_said() -> None:
    view = Leaving(egress=1, in_hand=2, undelivered=3, unsent={"b": 4, "c": 0}, appending=True)
    assert view.waiting == [
        "1 message in its egress queues",
        "2 messages on the way from egress into its log",
        "links into it still run",
        "3 messages of its log not delivered yet",
        "4 messages that b does not have yet",
    ]


def test_a_site_that_quiesces_closes_at_once_and_keeps_its_egress_queues() -> None:
    full = replace(EMPTY, egress=1000, keeps_egress=True)
    leave = looks(Leave(), full)
    assert leave.is_closed
    leave = looks(leave, replace(full, in_hand=1))
    assert leave.waiting == ("1 message on the way from egress into its log",)
    leave = looks(leave, *[full] * QUIET_LOOKS)
    assert leave.is_quiesced
    assert not leave.is_drained
    assert not looks(leave, replace(full, unsent={"tokyo": 1})).is_quiesced


def test_a_quiesced_site_that_is_to_leave_empties_its_egress_queues_first() -> None:
    quiet = replace(EMPTY, egress=3, keeps_egress=True)
    leave = looks(Leave(), *[quiet] * (QUIET_LOOKS + 1))
    leave = looks(leave, replace(quiet, keeps_egress=False))
    assert not leave.is_closed
    assert not leave.is_quiesced


def test_orders_of_a_file_from_before_a_site_could_quiesce_are_read(tmp_path: Path) -> None:
    (tmp_path / HOLDS_FILE).write_text(
        '{"format": 1, "paused": true, "draining": false, "links": ["a-b"]}'
    )
    assert read_holds(tmp_path) == Holds(paused=True, links=frozenset({"a-b"}))


def test_one_that_is_to_stay_after_all_begins_anew() -> None:
    drained = looks(Leave(), EMPTY, *[EMPTY] * QUIET_LOOKS)
    assert drained.is_drained
    assert looks(drained, None) == Leave()
