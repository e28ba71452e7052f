"""One connection's bytes under way in one direction: their order, and which come late."""

import random

from wan_proxy.condition import SEGMENT_BYTES
from wan_proxy.stream import DelayQueue, LateSegments


def test_nothing_overtakes_whatever_its_delay() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.push("slow", 10, arrives=5.0)
    queue.push("fast", 20, arrives=2.0)
    assert queue.next_arrival() == 5.0
    assert queue.pop_due(4.9) is None
    assert queue.bytes_under_way == 30
    assert [queue.pop_due(5.0), queue.pop_due(5.0), queue.pop_due(5.0)] == ["slow", "fast", None]
    assert queue.bytes_under_way == 0


def test_what_comes_after_something_late_waits_for_it_even_when_that_is_gone() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.push("late", 1, arrives=9.0)
    assert queue.pop_due(9.0) == "late"
    queue.push("next", 1, arrives=8.0)
    assert queue.next_arrival() == 9.0


def test_clearing_drops_and_says_how_much() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.push("a", 3, arrives=1.0)
    queue.push("b", 4, arrives=1.0)
    assert queue.clear() == 7
    assert queue.pop_due(100.0) is None
    assert queue.next_arrival() is None


def late_places(chunks: list[bytes], fraction: float, seed: int = 1) -> set[int]:
    """The places of segment beginnings that are late."""
    late = LateSegments(fraction, random.Random(seed))
    places, place = set(), 0
    for chunk in chunks:
        pieces = list(late.split(chunk))
        assert b"".join(piece for piece, _ in pieces) == chunk
        for piece, is_late in pieces:
            if is_late:
                places.add(place)
            place += len(piece)
    return places


def test_about_the_fraction_of_segments_is_late() -> None:
    segments = 20_000
    late = late_places([bytes(SEGMENT_BYTES * segments)], 0.05)
    assert 0.04 < len(late) / segments < 0.06
    assert all(place % SEGMENT_BYTES == 0 for place in late)


def test_the_same_bytes_are_late_however_they_are_cut_into_chunks() -> None:
    total = SEGMENT_BYTES * 400
    whole = late_places([bytes(total)], 0.03)
    rng = random.Random(5)
    chunks, left = [], total
    while left:
        size = min(left, rng.randrange(1, 5_000))
        chunks.append(bytes(size))
        left -= size
    assert late_places(chunks, 0.03) == whole
    assert late_places([bytes(total)], 0.03, seed=2) != whole


def test_without_a_fraction_chunks_pass_untouched() -> None:
    late = LateSegments(0.0, random.Random(1))
    chunk = bytes(100_000)
    [(piece, is_late)] = late.split(chunk)
    assert piece is chunk
    assert not is_late


def test_a_changed_fraction_holds_from_the_next_byte_on() -> None:
    late = LateSegments(0.0, random.Random(1))
    list(late.split(bytes(5_000)))
    late.change(0.99)
    assert any(is_late for _, is_late in late.split(bytes(100_000)))
    late.change(0.0)
    assert not any(is_late for _, is_late in late.split(bytes(100_000)))
