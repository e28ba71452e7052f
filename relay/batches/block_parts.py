"""Blocks of which the columns before a body stand apart from the body, in one ordinary zstd frame.

::

    frame header        of one segment, with the size of the content
    raw block           the columns before the body: identity, key, properties and so on
    further blocks      as zstd compresses the body alone

Every reader opens such a block like any other. What follows the raw block depends on the body
alone, so that equal bodies in different messages have equal bytes there, which a content store
keeps once. A body compressed alone refers to nothing before it, and a raw block changes none of the
state that a decoder carries from block to block: so the body's blocks may follow one.
"""

from __future__ import annotations

import struct
from typing import Any

import zstandard

MOST_APART = 4096
"""Most bytes that stand apart: what stays in the log of a large message is to be little."""
_FRAME = struct.Struct("<IBI")
_ZSTD_MAGIC = 0xFD2FB528
_ONE_SEGMENT_SIZE_OF_4_BYTES = 0xA0
_BLOCK_HEADER_BYTES = 3
_IS_LAST = 1
_TYPE_BITS = 0b110
_RAW = 0


def join_apart(before: bytes, body: bytes, compressor: zstandard.ZstdCompressor) -> bytes:
    """Compress into one frame, with the bytes `before` the body, at most MOST_APART, apart."""
    alone = compressor.compress(body)
    size = len(before) + len(body)
    return b"".join(
        (
            _FRAME.pack(_ZSTD_MAGIC, _ONE_SEGMENT_SIZE_OF_4_BYTES, size),
            (len(before) << 3 | _RAW).to_bytes(_BLOCK_HEADER_BYTES, "little"),
            before,
            memoryview(alone)[zstandard.frame_header_size(alone) :],
        )
    )


def bytes_apart(block: memoryview) -> int:
    """Return how many bytes of a block end with what stands apart; 0 where nothing does."""
    try:
        header: Any = zstandard.frame_header_size(block)
    except zstandard.ZstdError:
        return 0
    first = int.from_bytes(block[header : header + _BLOCK_HEADER_BYTES], "little")
    size = first >> 3
    if first & _IS_LAST or first & _TYPE_BITS or not 0 < size <= MOST_APART:
        return 0
    return int(header) + _BLOCK_HEADER_BYTES + size
