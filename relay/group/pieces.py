"""Frames in equal pieces, and parity that stands for any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.group import reed_solomon

MOST_WHOLE = 190
"""Most pieces of a frame: the rest of the indexes is left for parity."""


def split(frame: bytes, piece_bytes: int) -> list[bytes]:
    """Cut a frame into as few equal pieces as fit into datagrams; the last ones are padded. Raises
    ValueError if there would be more than MOST_WHOLE.
    """
    count = max(1, -(-len(frame) // piece_bytes))
    if count > MOST_WHOLE:
        raise ValueError(f"{len(frame)} bytes are more than {MOST_WHOLE} pieces")
    return cut(frame, count)


def cut(frame: bytes, count: int) -> list[bytes]:
    """Cut a frame into so many equal pieces; the last ones are padded."""
    each = max(1, -(-len(frame) // count))
    return [frame[n * each : (n + 1) * each].ljust(each, b"\0") for n in range(count)]


def parity(pieces: Sequence[bytes], indexes: Sequence[int]) -> list[bytes]:
    """Return the pieces with these indexes: parity, from `len(pieces)` on, or pieces themselves."""
    count = len(pieces)
    return [
        pieces[index] if index < count else reed_solomon.parity(pieces, index) for index in indexes
    ]


def join(pieces: Mapping[int, bytes], count: int, size: int) -> bytes:
    """Return the frame of `size` bytes of which any `count` pieces are given, by index."""
    if all(index in pieces for index in range(count)):
        return b"".join(pieces[index] for index in range(count))[:size]
    return b"".join(reed_solomon.recover(pieces, count))[:size]
