"""Times in ms as offsets of 4 bytes: little-endian, signed, after a base."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_MOST = 2**31 - 1


def pack_offsets(times_ms: Sequence[int], base_ms: int) -> bytes:
    """Times as 4 bytes each after (or before) `base_ms`; beyond 24 days they stop at the end."""
    try:
        offsets = array("i", [time - base_ms for time in times_ms])
    except OverflowError:
        offsets = array("i", [max(-_MOST, min(_MOST, time - base_ms)) for time in times_ms])
    return _little(offsets).tobytes()


def unpack_offsets(packed: bytes, base_ms: int) -> list[int]:
    """Undo `pack_offsets`."""
    offsets = array("i")
    offsets.frombytes(packed)
    return [base_ms + offset for offset in _little(offsets)]


def _little(numbers: array[int]) -> array[int]:
    if array("H", [1]).tobytes() != b"\x01\x00":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
