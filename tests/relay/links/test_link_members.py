"""A link tells who is in a revision before the first batch that bears it, whatever is lost."""

from __future__ import annotations

from relay.batches.known_formats import FIRST
from relay.ledger.members import decode_members, encode_members
from relay.links.wire import FrameKind
from tests.relay.link_logs import make_batch
from tests.relay.link_world import LinkWorld


def world_of(*revisions: str) -> LinkWorld:
    """The sender's log has ten batches of each revision, one after the other."""
    world = LinkWorld()
    for revision in revisions:
        first = len(world.source.batches)
        world.members[revision] = encode_members({"paris", revision})
        for sequence in range(first, first + 10):
            world.source.append(*make_batch(sequence, revision=revision))
    return world


def is_members_frame(frame: bytes) -> bool:
    return frame[1] == FrameKind.MEMBERS


def whole(world: LinkWorld) -> None:
    world.run_until_arrived(60)
    world.check_log()
    assert [name for name, _ in world.target.confirmed] == world.due()


def test_each_revision_is_told_once_a_session_and_is_known_before_its_batches_are_logged() -> None:
    world = world_of("r1", "r2")
    seen: list[bytes] = []
    world.carries = lambda frame: seen.append(frame) is None
    logged_without: list[str] = []
    world.start()
    append = world.target.append

    def checked(header, data, done):  # type: ignore[no-untyped-def]
        if header.revision not in world.known:
            logged_without.append(header.revision)
        append(header, data, done)

    world.target.append = checked  # type: ignore[method-assign]
    whole(world)
    assert logged_without == []
    assert len(list(filter(is_members_frame, seen))) == 2
    assert decode_members(world.known["r2"]) == {"paris", "r2"}


def test_a_revision_whose_telling_was_lost_is_told_again_and_no_batch_is_taken_before() -> None:
    world = world_of("r1")
    lost: list[bytes] = []

    def carries(frame: bytes) -> bool:
        if is_members_frame(frame) and len(lost) < 3:
            lost.append(frame)
            return False
        return True

    world.carries = carries
    world.start()
    whole(world)
    assert len(lost) == 3
    assert world.receiver is not None
    assert world.receiver.counters.ends["gap"] == 3


def test_a_receiver_that_dies_between_the_telling_and_the_batch_takes_both_the_next_time() -> None:
    world = world_of("r1")
    crashed: list[bytes] = []

    def carries(frame: bytes) -> bool:
        if frame[1] == FrameKind.BATCH and not crashed:
            crashed.append(frame)
            world.crash_receiver()
            world.known.clear()  # killed before it was on the disk
            world.time.call_later(1.0, world.start_receiver)
            return False
        return True

    world.carries = carries
    world.start()
    whole(world)
    assert crashed
    assert set(world.known) == {"r1"}


def test_of_a_revision_that_the_sender_does_not_know_batches_come_all_the_same() -> None:
    world = world_of("r1", "r2")
    del world.members["r1"]  # logged by a version of isthmus that told nobody
    world.start()
    whole(world)
    assert set(world.known) == {"r2"}


def test_a_receiver_of_the_first_release_is_told_nothing_and_gets_everything() -> None:
    world = world_of("r1", "r2")
    seen: list[bytes] = []
    world.carries = lambda frame: seen.append(frame) is None
    world.receiver_formats = FIRST
    world.start()
    whole(world)
    assert not any(map(is_members_frame, seen))
    assert world.known == {}
