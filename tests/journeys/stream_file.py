"""The files of a RabbitMQ stream on disk: where the chunks are, and how to lose the last of them.

A segment begins with 8 bytes of its own; chunks follow, each with a head of 48 bytes, big-endian::

    magic/version 1, kind 1, entries 2, records 4, timestamp 8, epoch 8, offset 8,
    crc 4, data size 4, trailer size 4, filter size 1, reserved 3
    then: filter, data, trailer
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

from federation.names import Names
from tests.live_brokers import Vhost

_SEGMENT_HEAD = 8
_CHUNK_HEAD = struct.Struct(">BBHIqQQIIIB3x")
_MAGIC = 5
_USER_DATA = 0


class Chunk(NamedTuple):
    """`position` and `size` in bytes, of the whole chunk in its file."""

    position: int
    size: int
    offset: int
    records: int
    """0 for chunks that carry the broker's own tracking."""


def last_segment(vhost: Vhost, names: Names) -> Path:
    """The file that a site's log is being appended to."""
    streams = vhost.broker.spec.folder / "data" / "node" / "stream"
    name = names.log.replace(".", "_")  # as the broker writes it in the folder's name
    # A digit follows, or the name of a further slot's log.
    (folder,) = (path for path in streams.iterdir() if re.search(rf"_{name}_\d", path.name))
    return max(folder.glob("*.segment"))


def chunks(segment: Path) -> list[Chunk]:
    """All whole chunks, in order."""
    found: list[Chunk] = []
    with segment.open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        position = _SEGMENT_HEAD
        while position + _CHUNK_HEAD.size <= end:
            file.seek(position)
            said = _CHUNK_HEAD.unpack(file.read(_CHUNK_HEAD.size))
            magic, kind, _, records, _, _, offset, _, data, trailer, filtering = said
            assert magic >> 4 == _MAGIC, f"no chunk at {position} of {segment}"
            size = _CHUNK_HEAD.size + filtering + data + trailer
            if position + size > end:
                break
            found.append(Chunk(position, size, offset, records if kind == _USER_DATA else 0))
            position += size
    return found


def lose_tail(segment: Path, first: Chunk, *, into: int = 0) -> None:
    """Cut the file off at this chunk, or `into` bytes further. The broker must not run."""
    os.truncate(segment, first.position + into)
