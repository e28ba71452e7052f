"""Looks for wanted messages in a log's batches, in their order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchName, Entry, LoggedBatch
from relay.batches.format import BadBatch, decode_entries
from relay.batches.fragments import FragmentAssembly, FragmentMismatch, message_of
from relay.batches.mesh_headers import as_repaired
from relay.bulk_amqp.errors import MalformedProperties
from relay.operator.repair_wanted import Wanted, by_place


class Found(NamedTuple):
    """`entry` is as it goes into a repair batch."""

    wanted: Wanted
    header: BatchHeader
    entry: Entry


class Search:
    """For these messages; what was found is not looked for any more."""

    def __init__(self, wanted: Iterable[Wanted]) -> None:
        self._wanted = by_place(wanted)
        self._pieces = FragmentAssembly()

    @property
    def is_over(self) -> bool:
        """Everything was found."""
        return not self._wanted

    @property
    def missing(self) -> list[Wanted]:
        """What has not been found."""
        return [one for entries in self._wanted.values() for one in entries.values()]

    def begin_again(self) -> None:
        """The log is read from its start again."""
        self._pieces = FragmentAssembly()

    def take(self, batch: LoggedBatch) -> Iterator[Found]:
        """The next batch of the log, not a void one: those of its messages that are wanted."""
        header = batch.header
        try:
            name = _name_of(header)
            if name not in self._wanted:
                return
            entries = decode_entries(batch.data)
            if header.fragment is not None:
                whole = self._pieces.add(header, entries[0]) if len(entries) == 1 else None
                if whole is None:
                    return
                entries = [whole]
        except (BadBatch, FragmentMismatch):
            return  # what cannot be opened here may be whole in another site's log
        yield from self._take_from(name, header, entries)

    def _take_from(
        self, name: BatchName, header: BatchHeader, entries: list[Entry]
    ) -> Iterator[Found]:
        wanted = self._wanted[name]
        for number, one in sorted(wanted.items()):
            if number >= len(entries) or entries[number].identity != one.identity:
                continue
            try:
                entry = as_repaired(entries[number], name.series.origin)
            except MalformedProperties:
                continue
            del wanted[number]
            yield Found(one, header, entry)
        if not wanted:
            del self._wanted[name]


def _name_of(header: BatchHeader) -> BatchName:
    return header.name if header.fragment is None else message_of(header)[0]
