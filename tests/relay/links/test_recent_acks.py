"""A receiver that restarts and lost nothing is offered nothing again; one that did is."""

from __future__ import annotations

import json

import pytest

from relay.batches.batch import BatchName
from relay.batches.name_set import NameSet
from relay.links.sender.progress import MOST_INTERVALS, RecentAcks
from tests.log_batches import batch_name
from tests.relay.link_world import LinkWorld
from tests.relay.links.test_link_machines import filled, in_order

HAD = "the receiver has it"


def names(*sequences: int) -> NameSet:
    result = NameSet()
    for sequence in sequences:
        result.add(batch_name(sequence))
    return result


def running(count: int = 20) -> LinkWorld:
    world = filled(LinkWorld(), count)
    world.start()
    world.run_until_arrived(5)
    world.time.run_until(world.time.now + 10)
    return world


def restart_receiver(world: LinkWorld, lost: int = 0) -> None:
    """Its broker loses so many of its last records, and nobody knows of it."""
    world.crash_receiver(lost, says_so=False)
    world.start_receiver()
    world.time.run_until(world.time.now + 60)


def offered_again(world: LinkWorld) -> int:
    assert world.sender is not None
    return world.sender.counters.skipped[HAD] + world.sender.counters.resent


def test_a_receiver_that_lost_nothing_is_offered_nothing_again() -> None:
    world = running()
    restart_receiver(world)
    assert world.sender is not None
    assert world.sender.counters.sessions == 2
    assert offered_again(world) == 0
    filled(world, 5)
    world.run_until_arrived(5)
    in_order(world)
    assert len(world.batches_sent) == 25


@pytest.mark.parametrize("lost", [1, 20])
def test_a_receiver_that_lost_what_it_had_acknowledged_gets_it_again(lost: int) -> None:
    world = running()
    restart_receiver(world, lost)
    in_order(world)
    assert offered_again(world) == 20


def test_both_ends_restart_and_nothing_is_offered_again() -> None:
    world = running()
    world.crash_sender()
    world.start_sender()
    restart_receiver(world)
    assert offered_again(world) == 0
    in_order(world)


def test_what_was_acknowledged_before_the_sender_s_restart_is_missed_too() -> None:
    world = running()
    world.crash_sender()
    world.start_sender()
    restart_receiver(world, 3)
    in_order(world)


def test_what_the_receiver_had_by_another_way_is_missed_too() -> None:
    world = filled(LinkWorld(), 20)
    for _, header, data in world.source.batches[:10]:
        world.target.append(header, data, lambda known: None)
    world.start()
    world.run_until_arrived(5)
    world.time.run_until(world.time.now + 10)
    assert offered_again(world) == 10
    restart_receiver(world, 20)
    assert {name for name, _ in world.target.confirmed} == set(world.due())


def test_with_an_older_node_s_position_the_link_looks_back() -> None:
    world = running()
    world.crash_sender()
    assert world.saved is not None
    kept = json.loads(world.saved)
    assert kept.pop("recent")
    world.saved = json.dumps(kept).encode()
    world.start_sender()
    restart_receiver(world, 3)
    in_order(world)


def test_names_are_kept_for_as_long_as_was_asked_and_not_much_longer() -> None:
    acks = RecentAcks(600.0)
    acks.begin_anew()
    acks.note(batch_name(0), 0.0)
    acks.note(batch_name(1), 599.0)
    acks.note(batch_name(2), 600.0)
    assert not acks.are_in(names(1, 2))
    acks.note(batch_name(3), 1199.0)
    assert not acks.are_in(names(0, 2, 3))
    acks.note(batch_name(4), 1200.0)
    assert acks.are_in(names(2, 3, 4))
    assert not acks.are_in(names(3, 4))


def test_what_is_kept_comes_back_over_a_restart() -> None:
    acks = RecentAcks(600.0)
    acks.begin_anew()
    acks.note(batch_name(0), 0.0)
    acks.note(batch_name(1), 700.0)
    again = RecentAcks(600.0, acks.encode())
    assert again.are_in(names(0, 1))
    assert not again.are_in(names(1))
    again.note(batch_name(2), 10.0)
    assert not again.are_in(names(0, 1))
    again.note(batch_name(3), 610.0)
    assert again.are_in(names(2, 3))


@pytest.mark.parametrize("kept", [b"", b"\xff", b"\x01\x05"])
def test_without_what_was_kept_it_is_not_known_until_all_of_it_is_old(kept: bytes) -> None:
    acks = RecentAcks(600.0, kept)
    acks.note(batch_name(0), 0.0)
    assert not acks.are_in(names(0))
    assert acks.encode() == b""
    acks.note(batch_name(1), 600.0)
    assert acks.are_in(names(0, 1))


def test_too_many_to_be_kept_is_not_known_rather_than_too_few() -> None:
    acks = RecentAcks(600.0)
    acks.begin_anew()
    had = NameSet()
    for sequence in range(0, 2 * MOST_INTERVALS + 2, 2):
        name: BatchName = batch_name(sequence)
        had.add(name)
        acks.note(name, 1.0)
    assert not acks.are_in(had)
    assert acks.encode() == b""
    acks.note(batch_name(0), 601.0)
    assert not acks.are_in(had)  # what was given up is not old enough yet
    acks.note(batch_name(2), 1201.0)
    assert acks.are_in(had)
