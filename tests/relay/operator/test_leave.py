"""When a site may leave the mesh."""

from __future__ import annotations

from dataclasses import replace

from relay.operator.leave import QUIET_LOOKS, Leave, Leaving

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


def test_one_that_is_to_stay_after_all_begins_anew() -> None:
    drained = looks(Leave(), EMPTY, *[EMPTY] * QUIET_LOOKS)
    assert drained.is_drained
    assert looks(drained, None) == Leave()
