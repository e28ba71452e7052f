"""Entries of a batch that is being packed: in the native core's columns, or as a list.

A consumer of entries gets either, or any other sequence of entries, and asks this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from relay import core
from relay.batches.batch import BatchHeader, Entry
from relay.batches.time_offsets import pack_offsets


class OpenBatch(Protocol):
    """Entries in the native core's columns: `isthmus_core.OpenBatch`."""

    size: int
    """Bytes of the columns."""
    first_published_ms: int
    last_published_ms: int

    def __len__(self) -> int: ...

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        ...

    def take(
        self,
        block: object,
        first: int,
        rules: object,
        now_ms: int,
        random: bytes,
        most_entries: int,
        most_bytes: int,
        big_above: int,
    ) -> tuple[int, int, int, int, int, int]:
        """Pack deliveries of a `DeliveryBlock` from number `first` on, as far as possible.

        `random` has the bytes for identities, 10 each. Returns the number of the next delivery; why
        the run ended (one of the constants below); the tag up to which own messages were passed
        over before the batch had an entry, or 0; the last tag that waits with the batch, or 0;
        random bytes used; and the number of own messages.
        """
        ...

    def columns(self) -> bytes:
        """Return the columns of the batch's block, before compression."""
        ...

    def drop_messages(self) -> None:
        """Free all but identities and publish times, once the batch is sealed."""
        ...

    def identities(self) -> bytes:
        """Return the identities, 16 bytes each."""
        ...

    def published(self) -> list[int]:
        """Return the publish times in ms since 1970."""
        ...

    def published_offsets(self, base_ms: int) -> bytes:
        """Return the publish times after `base_ms`, packed as in `time_offsets`."""
        ...


STOP_DONE, STOP_FULL, STOP_ODD, STOP_RANDOM = range(4)
"""Ends of `OpenBatch.take`: no delivery is left; the batch is to be sealed first; the next delivery
is the twin's; more random bytes are needed."""

PackedEntries = Sequence[Entry] | OpenBatch


class PackedBatch(NamedTuple):
    """A batch that the log has confirmed; its entries are without bodies (`without_bodies`)."""

    header: BatchHeader
    entries: PackedEntries


def new_open_batch() -> list[Entry] | OpenBatch:
    """Make a batch without entries."""
    if core.native is None:
        return []
    made: OpenBatch = core.native.OpenBatch()
    return made


def without_bodies(entries: PackedEntries) -> PackedEntries:
    """Return sealed entries with what a ledger's row needs, so that their bodies can be freed."""
    if isinstance(entries, Sequence):
        return [entry._replace(body=b"") for entry in entries]
    entries.drop_messages()
    return entries


def identities_of(entries: PackedEntries) -> bytes:
    """Return the identities, 16 bytes each."""
    if isinstance(entries, Sequence):
        return b"".join([entry.identity for entry in entries])
    return entries.identities()


def published_of(entries: PackedEntries) -> list[int]:
    """Return the publish times in ms since 1970."""
    if isinstance(entries, Sequence):
        return [entry.published_ms for entry in entries]
    return entries.published()


def published_offsets_of(entries: PackedEntries, base_ms: int) -> bytes:
    """Return the publish times after `base_ms`, packed as in `time_offsets`."""
    if isinstance(entries, Sequence):
        return pack_offsets([entry.published_ms for entry in entries], base_ms)
    return entries.published_offsets(base_ms)


def first_published_ms(entries: PackedEntries) -> int:
    """Return the first entry's publish time in ms since 1970."""
    return entries[0].published_ms if isinstance(entries, Sequence) else entries.first_published_ms


def last_published_ms(entries: PackedEntries) -> int:
    """Return the last entry's publish time in ms since 1970."""
    return entries[-1].published_ms if isinstance(entries, Sequence) else entries.last_published_ms
