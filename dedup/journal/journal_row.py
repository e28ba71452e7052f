"""Bytes of a journal's row: all changes of a stretch of writes, in columns.

::

    row     crc32 of the rest, format, cleared tables, ranges, tables
    table   name, count, lengths of the keys, lengths of the values (-1: deleted), keys, values

Numbers are little-endian and have four bytes; names and keys have their length before them.
"""

from __future__ import annotations

import struct
from zlib import crc32

from dedup.journal.journal import JournalDamaged, JournalTooNew
from dedup.store import Changes

ROW_FORMAT = 1
"""Newest format; a site writes the oldest that all its nodes read."""


class Writes(Changes):
    """Changes of several writes as one, which may have emptied tables before."""

    __slots__ = ("cleared", "size")

    def __init__(self) -> None:
        super().__init__()
        self.cleared: set[str] = set()
        """Tables that are emptied before anything else."""
        self.size = 0
        """Bytes of all that was added, about."""

    def __bool__(self) -> bool:
        return bool(self.cleared) or super().__bool__()

    def add(self, changes: Changes) -> None:
        """Append the changes of a later write."""
        for table, begin, end in changes.ranges:
            self.delete_range(table, begin, end)
            self.size += len(begin) + len(end)
        for table, keys in changes.tables.items():
            self.table(table).update(keys)
            self.size += sum(map(len, keys)) + sum(map(len, filter(None, keys.values())))

    def clear(self, table: str) -> None:
        """Append the emptying of a table."""
        self.tables.pop(table, None)
        self.ranges = [cut for cut in self.ranges if cut[0] != table]
        self.cleared.add(table)
        self.size += len(table)

    def hides(self, table: str, key: bytes) -> bool:
        """Return True if the table's earlier value of the key is gone."""
        return table in self.cleared or any(
            name == table and begin <= key < end for name, begin, end in self.ranges
        )


def encode_row(writes: Writes) -> bytes:
    """Encode the writes."""
    out = [
        _number(ROW_FORMAT),
        _number(len(writes.cleared)),
        *(_text(table.encode()) for table in sorted(writes.cleared)),
        _number(len(writes.ranges)),
    ]
    for table, begin, end in writes.ranges:
        out += (_text(table.encode()), _text(begin), _text(end))
    out.append(_number(len(writes.tables)))
    for table, keys in writes.tables.items():
        values = list(keys.values())
        count = len(values)
        out += (
            _text(table.encode()),
            _number(count),
            struct.pack(f"<{count}I", *map(len, keys)),
            struct.pack(f"<{count}i", *(-1 if value is None else len(value) for value in values)),
            *keys,
            *filter(None, values),
        )
    body = b"".join(out)
    return _number(crc32(body)) + body


def format_of_row(data: bytes) -> int:
    """Return the format that a row was written in, which this version need not know."""
    _, found = struct.unpack_from("<II", data)
    return int(found)


def decode_row(data: bytes) -> Writes:
    """Decode a row. Raises JournalDamaged, JournalTooNew."""
    try:
        return _decode(data)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise JournalDamaged(f"a row of the journal cannot be read: {error}") from error


def _decode(data: bytes) -> Writes:
    reading = _Reading(data)
    if reading.number() != crc32(memoryview(data)[4:]):
        raise JournalDamaged("a row of the journal cannot be read: its checksum differs")
    if (found := reading.number()) != ROW_FORMAT:
        raise JournalTooNew(
            f"a row of the journal has format {found}, this version of Isthmus reads"
            f" {ROW_FORMAT}: start the newer version"
        )
    writes = Writes()
    writes.cleared = {reading.text().decode() for _ in range(reading.number())}
    for _ in range(reading.number()):
        writes.ranges.append((reading.text().decode(), reading.text(), reading.text()))
    for _ in range(reading.number()):
        table = reading.text().decode()
        count = reading.number()
        key_lengths, value_lengths = reading.column("I", count), reading.column("i", count)
        keys = [reading.bytes(length) for length in key_lengths]
        values = [None if length < 0 else reading.bytes(length) for length in value_lengths]
        writes.tables[table] = dict(zip(keys, values, strict=True))
    writes.size = len(data)
    return writes


class _Reading:
    """Position in a row's bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        (number,) = self.column("I", 1)
        return int(number)

    def column(self, kind: str, count: int) -> tuple[int, ...]:
        column = struct.unpack_from(f"<{count}{kind}", self._data, self._at)
        self._at += 4 * count
        return column

    def text(self) -> bytes:
        return self.bytes(self.number())

    def bytes(self, length: int) -> bytes:
        begin, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise IndexError("the row ends in the middle of a value")
        return self._data[begin : self._at]


def _number(number: int) -> bytes:
    return struct.pack("<I", number)


def _text(text: bytes) -> bytes:
    return _number(len(text)) + text
