"""Records of a log whose batch has its content elsewhere: its first bytes, and a reference.

::

    4  magic "ISB" and the format's number, 128
    4  bytes of the content
   32  content ID: blake2b-256 of the content
       the batch's first bytes: all before the content, and at least the header

A batch is its first bytes and then the content. The number is beyond those of batches, and stands
where theirs stands: a node that cannot put the content back meets a format that it does not read,
takes nothing from there on, and says so.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

from relay.batches.block_parts import bytes_apart
from relay.batches.format import BadBatch, UnknownFormat, block_at, may_be_piece, read_header
from relay.batches.fragments import PIECE_BYTES

_MAGIC = b"ISB\x80"
_PREFIX = struct.Struct(">4sI32s")
ID_BYTES = 32
LEAST_BYTES = 4096
"""Bytes of a record that stays whole: a reference would hardly be smaller."""


class ContentReference(NamedTuple):
    """Reference to the content of a batch, with the batch's first bytes."""

    head: bytes
    content_id: bytes
    size: int
    """Bytes of the content."""

    def encode(self) -> bytes:
        return _PREFIX.pack(_MAGIC, self.size, self.content_id) + self.head

    @classmethod
    def decode(cls, record: bytes) -> ContentReference | None:
        """Read a record of a log; None if it is no reference."""
        if not record.startswith(_MAGIC) or len(record) < _PREFIX.size:
            return None
        _, size, content_id = _PREFIX.unpack_from(record)
        return cls(record[_PREFIX.size :], content_id, size)


def id_of(content: bytes | memoryview) -> bytes:
    """ID of this content."""
    return blake2b(content, digest_size=ID_BYTES).digest()


def content_of(record: bytes, above: int) -> memoryview | None:
    """Return the part of a record that goes into the content store: of a piece of a message whose
    pieces hold more than `above` bytes, by their full size. None: no part.
    """
    if len(record) <= LEAST_BYTES or not may_be_piece(record):
        return None
    try:
        fragment = read_header(record).fragment
    except (BadBatch, UnknownFormat):
        return None
    if fragment is None or fragment.pieces * PIECE_BYTES <= above:
        return None
    view = memoryview(record)
    begin = block_at(record)
    return view[begin + bytes_apart(view[begin:]) :]
