"""Pieces of a frame: any of them, as many as the frame has, make the frame again."""

from __future__ import annotations

import random

import pytest

from relay.group.datagram import MOST_PIECES
from relay.group.pieces import MOST_WHOLE, join, parity, split


@pytest.mark.parametrize("size", [1, 12, 13, 26, 27, 1000, 13 * MOST_WHOLE])
def test_any_pieces_make_the_frame(size: int) -> None:
    chance = random.Random(size)
    frame = chance.randbytes(size)
    pieces = split(frame, 13)
    assert len({len(piece) for piece in pieces}) == 1
    assert max(map(len, pieces)) <= 13
    count = len(pieces)
    indexes = range(MOST_PIECES)
    every = dict(zip(indexes, parity(pieces, indexes), strict=True))
    for _ in range(5):
        there = chance.sample(indexes, count)
        assert join({index: every[index] for index in there}, count, size) == frame


def test_a_frame_of_too_many_pieces_is_refused() -> None:
    with pytest.raises(ValueError, match="are more than 190 pieces"):
        split(bytes(13 * MOST_WHOLE + 1), 13)
