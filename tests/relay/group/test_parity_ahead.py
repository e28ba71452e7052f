"""Parity ahead of NACKs: none where nothing gets lost, and enough where much does."""

from __future__ import annotations

import random

import pytest

from relay.group.parity_ahead import ParityAhead


def sent_and_asked(
    loss: float, count: int, *, receivers: int = 3, frames: int = 4000
) -> tuple[float, float]:
    """Return parity pieces a frame, and the part of the frames that are asked for, once learned."""
    ahead, chance = ParityAhead(), random.Random(1)
    sent = asked = 0
    for number in range(2 * frames):
        parity = ahead.for_frame(number, count)
        lost = max(
            sum(chance.random() < loss for _ in range(count + parity)) for _ in range(receivers)
        )
        if lost > parity:
            ahead.asked(number, lost - parity)
        if number >= frames:
            sent += parity
            asked += lost > parity
    return sent / frames, asked / frames


def test_nothing_goes_ahead_where_nothing_is_asked_for() -> None:
    assert sent_and_asked(0.0, 50) == (0.0, 0.0)


@pytest.mark.parametrize("loss", [0.01, 0.05])
@pytest.mark.parametrize("count", [7, 16, 50])
def test_about_a_tenth_of_the_frames_is_left_to_be_asked_for(loss: float, count: int) -> None:
    sent, asked = sent_and_asked(loss, count)
    assert 0 < sent < 0.25 * count
    assert 0.01 < asked < 0.12


@pytest.mark.parametrize("count", [1, 3, 16, 190])
def test_no_more_than_a_quarter_goes_ahead_however_much_is_asked_for(count: int) -> None:
    ahead, frames = ParityAhead(), 1000
    sent = 0
    for number in range(frames):
        sent += ahead.for_frame(number, count)
        ahead.asked(number, 255)
    assert 0.2 * count * frames < sent <= 0.25 * count * frames


def test_the_first_nack_of_a_frame_counts_and_no_other() -> None:
    once, often = ParityAhead(), ParityAhead()
    for number in range(100):
        assert once.for_frame(number, 50) == often.for_frame(number, 50)
        once.asked(number, 1)
        for _ in range(20):
            often.asked(number, 1)
    once.asked(1000, 1)


def test_frames_of_few_pieces_learn_nothing_from_those_of_many() -> None:
    ahead = ParityAhead()
    for number in range(100):
        ahead.for_frame(number, 100)
        ahead.asked(number, 20)
    assert sum(ahead.for_frame(number, 10) for number in range(100, 200)) == 0


def test_a_nack_for_a_frame_of_long_ago_is_of_no_account() -> None:
    ahead = ParityAhead()
    for number in range(5000):
        ahead.for_frame(number, 50)
    for number in range(500):
        ahead.asked(number, 10)
    assert ahead.for_frame(5000, 50) == 0
