"""Bytes of a RabbitMQ stream: the hot frames of its protocol, its chunks, our records in them.

Frames (big-endian), all after `u32 size`, `u16 key`, `u16 version`::

    Publish (key 2)          u8 publisher, u32 count, then each: u64 publishing ID, u32 size, record
    PublishConfirm (key 3)   u8 publisher, u32 count, then each: u64 publishing ID
    Deliver (key 8)          u8 subscription, then one chunk

    chunk     u4 magic (5), u4 version    u8 type (0: messages)    u16 entries    u32 records
              i64 time, ms     u64 epoch     u64 first offset     u32 CRC-32 of the data
              u32 size of the data     u32 size of the trailer     u32 reserved     data
    entry     u32 size (top bit 0), record
    or        u8 (0x80 | compression << 4)   u16 records   u32 size when open   u32 size   data;
              open, its data is for each record: u32 size, record

A record of ours is an AMQP 1.0 message of one data section, so that any client can read it::

    00 53 75   b0 u32 size   bytes          (a writer with short bodies may say a0 u8 size instead)

Written here and not left to rstream because these three frames are the whole of the traffic, and a
frame object for each costs more than the rest of the append.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from relay.log.site_log import Record

KEY_PUBLISH = 2
KEY_PUBLISH_CONFIRM = 3
KEY_DELIVER = 8

FRAME_HEADER = struct.Struct(">IHH")
_PUBLISH_HEADER = struct.Struct(">IHHBI")
_MESSAGE_HEADER = struct.Struct(">QI4sI")
_CHUNK = struct.Struct(">BBHIqQQIIII")
_SUB_BATCH = struct.Struct(">BHII")

_DATA_LONG = b"\x00\x53\x75\xb0"
_DATA_SHORT = b"\x00\x53\x75\xa0"
WRAPPING_BYTES = 8
PUBLISH_OVERHEAD_BYTES = _PUBLISH_HEADER.size - 4
MESSAGE_OVERHEAD_BYTES = _MESSAGE_HEADER.size


class Chunk(NamedTuple):
    """A chunk as delivered: `size` bytes. `end` is the offset after the last record."""

    subscription: int
    first: int
    end: int
    size: int
    records: list[Record]


class BadChunk(Exception):
    """A Deliver frame cannot be a chunk: the connection is out of step. Close the connection."""


def publish_frame(publisher: int, first_id: int, records: Iterable[bytes]) -> bytes:
    """Make a Publish frame of records, with dense publishing IDs from `first_id` on."""
    parts: list[bytes] = [b""]
    next_id = first_id
    size = _PUBLISH_HEADER.size
    for record in records:
        length = len(record)
        parts.append(_MESSAGE_HEADER.pack(next_id, length + WRAPPING_BYTES, _DATA_LONG, length))
        parts.append(record)
        size += MESSAGE_OVERHEAD_BYTES + length
        next_id += 1
    parts[0] = _PUBLISH_HEADER.pack(size - 4, KEY_PUBLISH, 1, publisher, next_id - first_id)
    return b"".join(parts)


def confirmed_ids(body: bytes | memoryview) -> tuple[int, ...]:
    """Publishing IDs in the body of a PublishConfirm (the bytes behind key and version)."""
    count = int.from_bytes(body[1:5], "big")
    return struct.unpack_from(f">{count}Q", body, 5)


def read_deliver(body: memoryview) -> Chunk:
    """Read the chunk in a Deliver's body. Damage inside the chunk's data comes out as flawed
    records, so that a reader goes on behind. Raises BadChunk when not even the chunk's bounds are
    known.
    """
    try:
        magic, kind, entries, records, _, _, first, crc, size, _, _ = _CHUNK.unpack_from(body, 1)
    except struct.error as error:
        raise BadChunk(f"a chunk header of {len(body) - 1} bytes") from error
    data = body[1 + _CHUNK.size :]
    if magic != 0x50 or kind != 0:
        raise BadChunk(f"chunk magic {magic:#x}, type {kind}")
    if len(data) != size:
        raise BadChunk(f"{len(data)} bytes of data where the chunk says {size}")
    end = first + records
    if zlib.crc32(data) != crc:
        flaw = f"chunk of {records} records from {first} is damaged (checksum)"
        return Chunk(body[0], first, end, size, [Record(first, bytes(data), flaw)])
    return Chunk(body[0], first, end, size, _read_entries(data, entries, first))


def unwrap(offset: int, raw: bytes | memoryview) -> Record:
    """Unwrap a record from an AMQP 1.0 message of one data section; other bytes come out flawed."""
    head = bytes(raw[:4])
    if head == _DATA_LONG and len(raw) >= 8:
        start, length = 8, int.from_bytes(raw[4:8], "big")
    elif head == _DATA_SHORT and len(raw) >= 5:
        start, length = 5, raw[4]
    else:
        return Record(offset, bytes(raw), "not one AMQP 1.0 data section")
    if start + length != len(raw):
        return Record(offset, bytes(raw), f"{len(raw) - start} bytes in a data section of {length}")
    return Record(offset, bytes(raw[start:]))


def _read_entries(data: memoryview, count: int, first: int) -> list[Record]:
    result: list[Record] = []
    at, offset = 0, first
    try:
        for _ in range(count):
            if data[at] & 0x80:
                head, inside, _, size = _SUB_BATCH.unpack_from(data, at)
                at += _SUB_BATCH.size
                packed = data[at : at + size]
                at += size
                compression = (head & 0x70) >> 4
                if compression:
                    flaw = f"{inside} records compressed by their writer (type {compression})"
                    result.append(Record(offset, bytes(packed), flaw))
                else:
                    _read_sub_batch(packed, inside, offset, result)
                offset += inside
            else:
                size = int.from_bytes(data[at : at + 4], "big")
                at += 4
                if at + size > len(data):
                    raise BadChunk(f"an entry of {size} bytes at {at} of {len(data)}")
                result.append(unwrap(offset, data[at : at + size]))
                at += size
                offset += 1
    except (IndexError, struct.error) as error:
        raise BadChunk(f"entries are cut off at {at} of {len(data)}") from error
    return result


def _read_sub_batch(packed: memoryview, count: int, first: int, result: list[Record]) -> None:
    at = 0
    for offset in range(first, first + count):
        size = int.from_bytes(packed[at : at + 4], "big")
        at += 4
        if at + size > len(packed):
            raise BadChunk(f"a sub-batch record of {size} bytes at {at} of {len(packed)}")
        result.append(unwrap(offset, packed[at : at + size]))
        at += size
