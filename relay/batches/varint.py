"""Whole numbers in as few bytes as they need (LEB128: 7 bits a byte, low first, top bit = more).

For data that a node writes every second or sends at every welcome, where most numbers are small.
"""

from __future__ import annotations

_MOST = (1 << 64) - 1


class BadVarint(ValueError):
    """The bytes are cut off, or the number has more than 64 bits."""


def put(out: bytearray, number: int) -> None:
    """Append `number` (0 to 2^64-1). Raises ValueError for any other number."""
    if not 0 <= number <= _MOST:
        raise ValueError(f"{number} is not between 0 and 2^64-1")
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def get(data: bytes, at: int) -> tuple[int, int]:
    """Read the number at `at`; return the number and the next position. Raises BadVarint."""
    number = shift = 0
    while True:
        if at >= len(data):
            raise BadVarint("cut off")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > _MOST:
                raise BadVarint("more than 64 bits")
            return number, at
        shift += 7
        if shift > 63:
            raise BadVarint("more than 64 bits")


def put_text(out: bytearray, text: str) -> None:
    """Append the length in bytes, then UTF-8."""
    raw = text.encode()
    put(out, len(raw))
    out += raw


def get_text(data: bytes, at: int) -> tuple[str, int]:
    """Read the text at `at`; return the text and the next position. Raises BadVarint."""
    raw, at = get_bytes(data, at)
    try:
        return raw.decode(), at
    except UnicodeDecodeError as error:
        raise BadVarint(f"not UTF-8: {error}") from error


def put_bytes(out: bytearray, raw: bytes) -> None:
    """Append the length, then the bytes."""
    put(out, len(raw))
    out += raw


def get_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Read the bytes at `at`; return the bytes and the next position. Raises BadVarint."""
    length, at = get(data, at)
    end = at + length
    if end > len(data):
        raise BadVarint("cut off")
    return bytes(data[at:end]), end
