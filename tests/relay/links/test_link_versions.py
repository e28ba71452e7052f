"""The two ends of a link are of different versions of the program, for the weeks of an upgrade."""

from __future__ import annotations

import pytest

from relay.batches.known_formats import FIRST, KNOWN, Formats, as_before
from relay.links import wire
from relay.links.metrics import LinkState
from tests.relay.link_logs import make_batch
from tests.relay.link_world import LinkWorld

LATER = Formats(2, 3, 3, 4)
"""Of the version after this one."""


def world_of(sender: Formats, receiver: Formats) -> LinkWorld:
    world = LinkWorld()
    world.sender_formats, world.receiver_formats = sender, receiver
    return world


def upgrade_receiver(world: LinkWorld) -> None:
    world.crash_receiver()
    world.receiver_formats = KNOWN
    world.start_receiver()


@pytest.mark.parametrize(
    ("sender", "receiver"), [(FIRST, FIRST), (FIRST, KNOWN), (KNOWN, FIRST), (KNOWN, KNOWN)]
)
def test_a_link_works_between_this_version_and_the_one_before(
    sender: Formats, receiver: Formats
) -> None:
    world = world_of(sender, receiver)
    for number in range(200):
        world.source.append(*make_batch(number))
    world.start()
    world.run_until_arrived(10)
    world.check_log()
    assert world.sender is not None
    assert world.receiver is not None
    told = world.sender.receiver_formats
    # The first release says nothing of itself, and does not hear what is said to it.
    assert told == (KNOWN if sender == receiver == KNOWN else FIRST)
    dropped = world.sender.counters.dropped | world.receiver.counters.dropped
    assert not {"other version", "malformed", "damaged"} & set(dropped)
    assert world.sender.counters.sessions == world.receiver.counters.sessions == 1


def test_a_version_in_common_is_the_newest_that_both_speak() -> None:
    assert KNOWN.common_link_version(LATER) == LATER.common_link_version(KNOWN) == 3
    assert KNOWN.common_link_version(FIRST) == 1
    assert LATER.common_link_version(FIRST) is None
    assert as_before(KNOWN) == Formats(1, 1, 1, 2)
    assert as_before(LATER) == Formats(2, 2, 3, 3)


@pytest.mark.parametrize("receiver", [FIRST, Formats(1, 1, 1, 2)])
def test_a_batch_that_the_receiver_cannot_read_stops_the_link_until_it_is_upgraded(
    receiver: Formats,
) -> None:
    world = world_of(KNOWN, receiver)
    for number in range(20):
        world.source.append(*make_batch(number, format=1 if number < 10 else 2))
    world.start()
    world.time.run_until(world.time.now + 5)
    assert world.sender is not None
    assert world.receiver is not None
    for said in (world.sender.reason, world.receiver.not_understood):
        assert "paris has a batch that tokyo cannot read: batch format 2" in said
        assert "upgrade the node of tokyo" in said
    assert world.sender.state is LinkState.DOWN
    sent = world.sender.counters.sent
    world.time.run_until(world.time.now + 7200)
    assert world.sender.counters.sent == sent, "what cannot be read crossed the line again"
    assert world.sender.state is LinkState.DOWN
    assert len(world.target.names) == 10
    assert world.quarantined == []
    assert world.given_up == []
    upgrade_receiver(world)
    world.run_until_arrived(60)
    world.check_log()
    assert [name for name, _ in world.target.confirmed] == world.due()
    assert world.sender.state is LinkState.RUNNING
    assert world.receiver.not_understood == ""


def test_a_change_of_the_mesh_may_take_away_what_a_link_stands_at() -> None:
    world = world_of(KNOWN, FIRST)
    world.source.append(*make_batch(0, format=2))
    world.start()
    world.time.run_until(world.time.now + 60)
    assert world.sender is not None
    sessions = world.sender.counters.sessions
    elsewhere = world.forwarding.__class__(
        world.forwarding.rule,
        world.forwarding.own,
        world.forwarding.neighbour,
        world.forwarding.reachable,
        world.forwarding.sites | {"oslo"},
    )
    world._do_sender(world.sender.change(elsewhere, world.time.now))
    world.time.run_until(world.time.now + 60)
    assert world.sender.counters.sessions > sessions


@pytest.mark.parametrize(("sender", "receiver"), [(FIRST, LATER), (LATER, FIRST)])
def test_ends_without_a_version_in_common_say_so_at_both(
    sender: Formats, receiver: Formats
) -> None:
    world = world_of(sender, receiver)
    world.source.append(*make_batch(0))
    world.start()
    world.time.run_until(world.time.now + 60)
    assert world.sender is not None
    assert world.receiver is not None
    for said in (world.sender.reason, world.receiver.not_understood):
        assert "upgrade the older node" in said
        assert "link version" in said
    assert world.sender.state is LinkState.DOWN
    assert len(world.target.names) == 0
    world.crash_sender()
    world.crash_receiver()
    world.sender_formats = world.receiver_formats = KNOWN
    world.start()
    world.run_until_arrived(60)
    assert world.receiver.not_understood == ""


def test_an_end_of_the_version_before_drops_frames_of_this_one() -> None:
    nonce, run = bytes(8), bytes(8)
    frame = wire.encode_pulse(2, nonce, run, 1, 1, None)
    assert isinstance(wire.decode_frame(frame), wire.Pulse)
    with pytest.raises(wire.OtherVersion):
        wire.decode_frame(frame, FIRST)


def test_whatever_its_version_an_end_can_say_that_it_is_over() -> None:
    frame = wire.encode_over(9, b"nonce678", b"run45678", wire.Cause.GAP, 3, "why")
    said = wire.decode_frame(frame)
    assert said == wire.Over(b"nonce678", b"run45678", wire.Cause.GAP, 3, "why")


def test_a_cause_that_a_later_version_adds_is_read_by_its_reason() -> None:
    later = wire.encode_over(1, bytes(8), bytes(8), 200, 3, "why")  # type: ignore[arg-type]
    said = wire.decode_frame(later)
    assert isinstance(said, wire.Over)
    assert (said.cause, said.reason) == (wire.Cause.OTHER, "why")


def test_a_welcome_of_any_length_that_is_cut_off_is_malformed_and_nothing_else() -> None:
    whole = wire.encode_welcome(wire.Welcome(bytes(8), bytes(8), 1, 1, b"log", b"\1\0\0", KNOWN, 2))
    assert wire.decode_frame(whole) == wire.Welcome(
        bytes(8), bytes(8), 1, 1, b"log", b"\1\0\0", KNOWN, 2
    )
    for length in range(len(whole)):
        with pytest.raises(wire.BadFrame):
            wire.decode_frame(whole[:length])
