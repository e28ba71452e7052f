"""A batch that was opened: messages in the native core's columns, or as a list of entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dedup.identity import content_hash
from relay import core
from relay.batches.batch import BatchHeader, Entry, LoggedBatch, make_entry
from relay.batches.format import BadBatch, open_columns, split_columns
from relay.batches.fragments import FragmentAssembly, FragmentMismatch
from relay.batches.time_offsets import pack_offsets
from relay.bulk_amqp.content_header import CONTENT_ENCODING, CONTENT_TYPE, text
from relay.bulk_amqp.errors import MalformedProperties

EntryFields = tuple[bytes, bytes, bytes, bytes, int, int, bool]
"""Fields of an Entry, in order."""


class OpenedBatch(Protocol):
    """Messages of a batch by number. Ranges are half open."""

    def __len__(self) -> int: ...

    def entry(self, number: int) -> EntryFields: ...

    def keys(self, prefix: bytes, begin: int, end: int) -> list[bytes]:
        """Return the barrier keys: the prefix before each identity."""
        ...

    def contents(self, begin: int, end: int) -> list[bytes]:
        """Return at least 8 bytes of each content hash."""
        ...

    def identities(self, begin: int, end: int) -> bytes:
        """Return the identities, 16 bytes each."""
        ...

    def published(self, begin: int, end: int) -> list[int]:
        """Return the publish times in ms since 1970."""
        ...

    def published_offsets(self, begin: int, end: int, base_ms: int) -> bytes:
        """Return the publish times after `base_ms`, packed as in `time_offsets`."""
        ...

    def doubtful(self) -> list[int]:
        """Return the numbers of entries that may have been packed before."""
        ...

    def expired(self, begin: int, end: int, now_ms: int) -> list[int]:
        """Return the numbers of entries whose deadline has come."""
        ...

    def stamped(self, begin: int, end: int, stamp: object, now_ms: int) -> Any:
        """Return the messages as `isthmus_core.StampedRun`, or None where the twin has to stamp
        them: properties that cannot be read, an expired message, or no native core.
        """
        ...


class OpenedEntries:
    """OpenedBatch over a list of entries."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, number: int) -> EntryFields:
        return self._entries[number]

    def keys(self, prefix: bytes, begin: int, end: int) -> list[bytes]:
        return [prefix + entry.identity for entry in self._entries[begin:end]]

    def contents(self, begin: int, end: int) -> list[bytes]:
        return [content_of(entry) for entry in self._entries[begin:end]]

    def identities(self, begin: int, end: int) -> bytes:
        return b"".join([entry.identity for entry in self._entries[begin:end]])

    def published(self, begin: int, end: int) -> list[int]:
        return [entry.published_ms for entry in self._entries[begin:end]]

    def published_offsets(self, begin: int, end: int, base_ms: int) -> bytes:
        return pack_offsets(self.published(begin, end), base_ms)

    def doubtful(self) -> list[int]:
        return [number for number, entry in enumerate(self._entries) if entry.doubtful]

    def expired(self, begin: int, end: int, now_ms: int) -> list[int]:
        return [
            begin + index
            for index, entry in enumerate(self._entries[begin:end])
            if entry.deadline_ms and entry.deadline_ms <= now_ms
        ]

    def stamped(self, begin: int, end: int, stamp: object, now_ms: int) -> None:
        return None


class OwnMessage(OpenedEntries):
    """A message of the site's own that was packed in pieces, without its body."""

    def __init__(self, entry: Entry, content: bytes) -> None:
        """`content` is the hash of the whole message's content."""
        super().__init__([entry])
        self._content = content

    def contents(self, begin: int, end: int) -> list[bytes]:
        return [self._content] * (end - begin)


def open_batch(data: bytes | memoryview, header: BatchHeader) -> OpenedBatch:
    """Open the batch whose header was read. Raises BadBatch."""
    columns = open_columns(data, header)
    count, first_ms = header.entry_count, header.first_published_ms
    if core.native is None:
        return OpenedEntries(split_columns(columns, count, first_ms))
    try:
        opened: OpenedBatch = core.native.OpenedBatch(columns, count, first_ms)
    except ValueError as error:
        raise BadBatch(str(error)) from error
    return opened


def put_together(pieces: Sequence[LoggedBatch]) -> OpenedBatch:
    """Open a batch, or a big message of all its pieces. Raises BadBatch, FragmentMismatch."""
    if len(pieces) == 1 and pieces[0].header.fragment is None:
        return open_batch(pieces[0].data, pieces[0].header)
    assembly, whole = FragmentAssembly(), None
    for piece in pieces:
        one = open_batch(piece.data, piece.header)
        whole = assembly.add(piece.header, make_entry(one.entry(0)))
    if whole is None:
        raise FragmentMismatch(pieces[-1].header.name, "its pieces are not all there")
    return OpenedEntries([whole])


_EITHER = CONTENT_ENCODING.to_bytes(2)[:1]
"""First flag byte with the bit of content encoding; with neither type nor encoding it is less."""


def content_of(entry: Entry) -> bytes:
    """Hash of key, body, content type and encoding (both empty if unreadable)."""
    content_type = content_encoding = None
    if entry.properties[:1] >= _EITHER:
        try:
            content_type = text(entry.properties, CONTENT_TYPE)
            content_encoding = text(entry.properties, CONTENT_ENCODING)
        except MalformedProperties:
            content_type = None  # the stamp fails too, and the message is quarantined
    return content_hash(entry.routing_key, entry.body, content_type, content_encoding)
