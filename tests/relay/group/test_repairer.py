"""Frames that a site keeps, and its answers for those that others lack."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from relay.group.datagram import GroupStream, Nack, new_epoch, site_id
from relay.group.pieces import MOST_WHOLE, join, parity, split
from relay.group.repairer import Repairer
from relay.group.settings import GroupSettings

STREAM = GroupStream(site_id("paris"), new_epoch(1, bytes(8)))
FRAME = bytes(range(200))
LIMA, OSLO = site_id("lima"), site_id("oslo")


def test_a_frame_that_is_whole_once_more_takes_no_more_room() -> None:
    repairer = Repairer(GroupSettings(rate=1e6, sent_bytes=3 * len(FRAME)), lambda stream: ())
    for number in (0, 1, 2, 2, 2, 2):
        repairer.keep(STREAM, number, split(FRAME, 50), len(FRAME))
    asked = repairer.on_nack(Nack(STREAM, ((0, 1), (1, 1), (2, 1))), LIMA, 0.0)
    assert asked == 3 * 50, "all three are kept"


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 138, MOST_WHOLE])
def test_whatever_a_site_lacks_is_answered_with_enough(count: int) -> None:
    repairer = Repairer(GroupSettings(rate=1e6), lambda stream: ())
    frame = random.Random(count).randbytes(3 * count)
    pieces = split(frame, 3)
    repairer.keep(STREAM, 0, pieces, len(frame))
    for lacking in range(1, count + 1):
        repairer.on_nack(Nack(STREAM, ((0, lacking),)), LIMA, 0.0)
        answered = {piece.piece: piece.data for piece in repairer.due(1.0, lambda: True)}
        has = dict(enumerate(pieces[lacking:], lacking))
        assert join(has | answered, count, len(frame)) == frame


def test_the_oldest_frames_make_room() -> None:
    repairer = Repairer(GroupSettings(rate=1e6, sent_bytes=3 * len(FRAME)), lambda stream: ())
    for number in range(5):
        repairer.keep(STREAM, number, split(FRAME, 50), len(FRAME))
    asked = Nack(STREAM, tuple((number, 1) for number in range(5)))
    assert repairer.on_nack(asked, LIMA, 0.0) == 3 * 50
    kept = {piece.number for piece in repairer.due(1.0, lambda: True)}
    assert kept == {2, 3, 4}


def test_what_a_site_asks_for_again_counts_once_and_what_it_lacks_beside() -> None:
    repairer = Repairer(GroupSettings(rate=1e6), lambda stream: ())
    repairer.keep(STREAM, 0, split(FRAME, 50), len(FRAME))

    def asks(site: bytes, missing: int) -> int:
        return repairer.on_nack(Nack(STREAM, ((0, missing),)), site, 0.0)

    assert [asks(LIMA, 2), asks(LIMA, 2), asks(LIMA, 1), asks(LIMA, 3)] == [100, 0, 0, 50]
    assert asks(OSLO, 2) == 100


def test_no_more_parity_is_made_than_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counting(pieces: Sequence[bytes], indexes: Sequence[int]) -> list[bytes]:
        made.extend(indexes)
        return parity(pieces, indexes)

    monkeypatch.setattr("relay.group.repairer.parity", counting)
    repairer = Repairer(GroupSettings(rate=1e6), lambda stream: ())
    repairer.keep(STREAM, 0, [bytes(100)] * 100, 10_000)
    repairer.on_nack(Nack(STREAM, ((0, 60),)), b"lima", 0.0)
    sent = 0
    room = iter([True, True, True, False] * 40)
    while sent < 61:
        sent += len(list(repairer.due(1.0, lambda: next(room))))
    assert len(made) == len(set(made)) == 61


def test_frames_beyond_a_number_are_not_answered_at_a_time() -> None:
    repairer = Repairer(GroupSettings(rate=1e6), lambda stream: ())
    for number in range(1000):
        repairer.keep(STREAM, number, [bytes(10)], 10)
        repairer.on_nack(Nack(STREAM, ((number, 1),)), b"lima", 0.0)
    assert len(list(repairer.due(1.0, lambda: True))) == 256


def test_sites_that_answer_for_one_frame_send_different_parity() -> None:
    sent: list[int] = []
    for rank in range(5):
        before = [site_id(f"replayer{number}") for number in range(rank)]
        repairer = Repairer(GroupSettings(rate=1e6), lambda stream, before=before: before)
        repairer.keep(STREAM, 0, [bytes(10)] * MOST_WHOLE, 10 * MOST_WHOLE)
        sent += [piece.piece for piece in repairer.unasked(STREAM, 0, 3)]
        repairer.on_nack(Nack(STREAM, ((0, 9),)), LIMA, 0.0)
        sent += [piece.piece for piece in repairer.due(1.0, lambda: True)]
    assert len(sent) == len(set(sent)) == 5 * (3 + 9 + 1)


@pytest.mark.parametrize(("missing", "answered"), [(1, 2), (19, 20), (20, 20), (255, 20)])
def test_an_answer_has_a_piece_to_spare_unless_it_has_all(missing: int, answered: int) -> None:
    repairer = Repairer(GroupSettings(rate=1e6), lambda stream: ())
    repairer.keep(STREAM, 0, [bytes(10)] * 20, 200)
    for site in (LIMA, OSLO):
        repairer.on_nack(Nack(STREAM, ((0, missing),)), site, 0.0)
    assert len(list(repairer.due(1.0, lambda: True))) == answered


def test_a_site_waits_for_those_of_a_lower_rank_unless_they_lack_the_frame_as_well() -> None:
    settings = GroupSettings(rate=1e6, gather_s=0.005, rank_wait_s=0.03)
    repairer = Repairer(settings, lambda stream: (LIMA, OSLO))
    repairer.keep(STREAM, 0, [bytes(10)] * 20, 200)

    def due_after(site: bytes) -> float | None:
        repairer.on_nack(Nack(STREAM, ((0, 1),)), site, 0.0)
        return repairer.wakeup()

    found = [due_after(site) for site in (site_id("paris"), OSLO, LIMA)]
    assert found == pytest.approx([0.065, 0.035, 0.005])
