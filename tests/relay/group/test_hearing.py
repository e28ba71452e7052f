"""Figures of the datagrams that a site hears of the others of its group."""

from __future__ import annotations

from collections.abc import Iterable

from relay.group.brought import BroughtBatches, BroughtFrom
from relay.group.datagram import (
    NO_FRAME,
    FramePiece,
    GroupMessage,
    GroupPulse,
    GroupStream,
    Received,
    new_epoch,
    site_id,
)
from relay.group.hearing import LATELY_S, HeardSites
from tests.log_batches import batch_name

PARIS = GroupStream(site_id("paris"), new_epoch(1000, bytes(8)))
LATER = GroupStream(site_id("paris"), new_epoch(2000, bytes(8)))
TOKYO = GroupStream(site_id("tokyo"), new_epoch(1000, bytes(8)))


def pulse(number: int = NO_FRAME) -> GroupPulse:
    return GroupPulse(number, 0, "")


def piece(number: int, stream: GroupStream = PARIS) -> FramePiece:
    return FramePiece(stream, number, 0, 1, 1, b"x")


def heard(*datagrams: tuple[int, GroupMessage], sender: GroupStream = PARIS) -> HeardSites:
    """Sites heard by a second between two datagrams, each with its counter."""
    found = HeardSites(0.0)
    for now, (counter, message) in enumerate(datagrams):
        found.note(Received(sender, message, counter), float(now))
    return found


def counted(found: HeardSites, counters: Iterable[int], now: float) -> None:
    for counter in counters:
        found.note(Received(PARIS, pulse(), counter), now)


def test_a_site_of_which_nothing_has_come_has_no_figures() -> None:
    assert HeardSites(0.0).of(PARIS.publisher) is None
    assert heard((0, pulse()), sender=TOKYO).of(PARIS.publisher) is None


def test_the_counters_that_did_not_come_are_missing() -> None:
    figures = heard((7, pulse()), (8, pulse()), (11, pulse()), (10, pulse())).of(PARIS.publisher)
    assert figures is not None
    assert (figures.at, figures.sent, figures.missing) == (3.0, 5, 1)


def test_what_got_lost_long_ago_is_forgotten() -> None:
    found = HeardSites(0.0)
    counted(found, range(0, 100, 2), 0.0)
    counted(found, range(100, 200), LATELY_S)
    figures = found.of(PARIS.publisher)
    assert figures is not None
    assert (figures.sent, figures.missing) == (200, 50)
    counted(found, range(200, 300), 2 * LATELY_S)
    figures = found.of(PARIS.publisher)
    assert figures is not None
    assert (figures.sent, figures.missing) == (201, 1)


def test_a_sender_that_begins_anew_counts_from_there_and_stragglers_do_not() -> None:
    found = heard((5, pulse()), (9, pulse()))
    found.note(Received(LATER, pulse(), 0), 10.0)
    found.note(Received(PARIS, pulse(), 8), 11.0)
    figures = found.of(PARIS.publisher)
    assert figures is not None
    assert (figures.at, figures.sent, figures.missing) == (10.0, 1, 0)


def test_pulses_that_tell_of_frames_whose_pieces_do_not_come_are_counted() -> None:
    def alone(*messages: GroupMessage) -> int:
        figures = heard(*enumerate(messages)).of(PARIS.publisher)
        assert figures is not None
        return figures.pulses_alone

    assert alone(pulse(), pulse(), pulse()) == 0
    assert alone(pulse(3), pulse(3), pulse(3)) == 0, "the stream rests"
    assert alone(pulse(3), pulse(4), pulse(4), pulse(6)) == 2
    assert alone(pulse(3), pulse(4), piece(5), pulse(5)) == 0
    # What another repairs says nothing of the way from the publisher.
    assert alone(pulse(3), pulse(4), piece(4, TOKYO), pulse(5)) == 2


def test_what_a_link_has_brought_just_now_is_known_for_a_second() -> None:
    brought = BroughtBatches()
    brought.by_link(batch_name(1), 3.0)
    assert brought.is_just_linked(batch_name(1), 3.9)
    assert not brought.is_just_linked(batch_name(2), 3.9)
    assert not brought.is_just_linked(batch_name(1), 4.1)
    brought.by_link(batch_name(2), 5.0)
    assert len(brought._linked) == 1, "what is old takes no memory"


def test_batches_are_counted_by_what_has_brought_them() -> None:
    brought = BroughtBatches()
    brought.by_group("paris")
    brought.by_link(batch_name(1, origin="paris"), 3.0)
    brought.by_link(batch_name(1, origin="paris"), 4.0)
    assert brought.of("paris") == BroughtFrom(1, 2, 4.0)
    assert brought.of("tokyo") == BroughtFrom()
