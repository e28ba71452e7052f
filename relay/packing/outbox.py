"""Sealed parcels on their way into the log: numbered, headed, appended in order.

The log may have a limited amount unconfirmed; the rest waits here. A big message leaves in pieces,
without others' batches between, since one outbox appends in one order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from relay import crash_points
from relay.batches.batch import (
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    Fragment,
    Predecessor,
    Series,
)
from relay.batches.format import seal
from relay.batches.fragments import split
from relay.batches.opened_batch import content_of
from relay.batches.packed_entries import (
    PackedEntries,
    first_published_ms,
    last_published_ms,
    published_of,
    without_bodies,
)
from relay.packing.flow_packer import Parcel
from relay.packing.packer_parts import PackerLog
from relay.packing.packer_settings import PackerSettings
from relay.packing.requested_parcels import CanaryParcel, RepairParcel, RequestedParcel


class Confirmed(NamedTuple):
    """Batch that stands in the log."""

    header: BatchHeader
    entries: PackedEntries
    size: int
    """Bytes as appended."""
    parcel: Parcel | RequestedParcel | None
    """Parcel that is now logged whole, or None for a piece with more to follow."""


class PackerOutbox:
    """Outbox of one incarnation. Appends nothing while `may_not_append()`.

    `on_failed` receives the reason why an append is in doubt: the incarnation must end then.
    """

    def __init__(
        self,
        settings: PackerSettings,
        incarnation: bytes,
        log: PackerLog,
        may_not_append: Callable[[], bool],
        on_confirmed: Callable[[Confirmed], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.predecessors: tuple[Predecessor, ...] = ()
        """Predecessors, announced in every header once known."""
        self.next_whole = 0
        """Number of the next batch over the whole incarnation."""
        self.revision = settings.revision
        """Revision of the mesh, announced in every header."""
        self._settings = settings
        self._incarnation = incarnation
        self._log = log
        self._may_not_append = may_not_append
        self._on_confirmed = on_confirmed
        self._on_failed = on_failed
        self._total_messages = 0
        self._total_bytes = 0
        self._unconfirmed_bytes = 0
        self._next: dict[Series, int] = {}
        """Number of the next batch in each series: a series has one destination set."""
        self._parcels: deque[Parcel | RequestedParcel] = deque()
        self._requested: set[RequestedParcel] = set()
        """Requested parcels that the log has not confirmed."""
        self._pieces: Iterator[tuple[Fragment, Entry]] | None = None
        self._next_piece: tuple[Fragment, Entry] | None = None
        self._pieces_revision = ""
        """Revision for all pieces of the big message: their recipients must be the same."""
        self._pieces_content = b""
        """Hash of the big message's content."""
        self._in_flight: dict[int, int | None] = {}
        """Number in the incarnation -> first publish time (ms), None if requested."""

    @property
    def is_empty(self) -> bool:
        """True if every parcel is confirmed."""
        return not self._in_flight and not self._parcels

    @property
    def oldest_published_ms(self) -> int | None:
        """Earliest publish time (ms) not confirmed, or None if there is none."""
        waiting = [
            first_published_ms(parcel.entries)
            for parcel in self._parcels
            if isinstance(parcel, Parcel)
        ]
        in_flight = [first_ms for first_ms in self._in_flight.values() if first_ms is not None]
        return min([*waiting, *in_flight], default=None)

    def add(self, parcel: Parcel | RequestedParcel) -> None:
        """Add a parcel for the next `pump`."""
        self._parcels.append(parcel)
        if not isinstance(parcel, Parcel):
            self._requested.add(parcel)

    def give_up(self) -> None:
        """Fail all requested parcels, as the incarnation ends: the log may have them, or not."""
        for parcel in self._requested:
            parcel.give_up()
        self._requested.clear()

    async def append_mark(self, now_ms: int) -> int:
        """Append a batch without entries, with the predecessors; return its confirmed number."""
        settings = self._settings
        series = Series(settings.cluster_id, self._incarnation, "", 0, settings.mark_destinations)
        name = BatchName(series, self.next_whole)
        header = self._header(BatchKind.MARK, name, now_ms, now_ms)
        header, data = seal(header, (), settings.signer)
        self.next_whole += 1
        await self._log.append_nowait(header, data)
        return header.incarnation_sequence

    def pump(self) -> None:
        """Append sealed parcels, as far as the log may have unconfirmed."""
        while self._parcels and self._unconfirmed_bytes < self._settings.unconfirmed_bytes:
            if self._may_not_append():
                return
            parcel = self._parcels[0]
            if not parcel.big:
                self._parcels.popleft()
                self._append_parcel(parcel, parcel.entries, None, last=True)
                continue
            if self._pieces is None:
                assert isinstance(parcel.entries, Sequence), "a big message is alone in a list"
                self._pieces = split(parcel.entries[0])
                self._pieces_revision = self.revision
                self._pieces_content = content_of(parcel.entries[0])
                self._next_piece = next(self._pieces)
            assert self._next_piece is not None
            fragment, entry = self._next_piece
            self._next_piece = next(self._pieces, None)
            last = self._next_piece is None
            if last:
                self._pieces = None
                self._parcels.popleft()
            self._append_parcel(parcel, [entry], fragment, last=last)

    def _append_parcel(
        self,
        parcel: Parcel | RequestedParcel,
        entries: PackedEntries,
        fragment: Fragment | None,
        *,
        last: bool,
    ) -> None:
        series = Series(
            self._settings.cluster_id,
            self._incarnation,
            parcel.exchange,
            parcel.lane,
            parcel.destinations,
        )
        sequence = self._next.get(series, 0)
        self._next[series] = sequence + 1
        if isinstance(parcel, CanaryParcel):
            kind, published = BatchKind.CANARY, [parcel.made_ms]
        elif isinstance(parcel, RepairParcel):
            kind, published = BatchKind.REPAIR, sorted(published_of(entries))
        else:
            kind = BatchKind.MESSAGES if fragment is None else BatchKind.FRAGMENT
            published = [first_published_ms(entries), last_published_ms(entries)]
        header = self._header(
            kind,
            BatchName(series, sequence),
            published[0],
            published[-1],
            fragment,
            # `seal` adds the entries; a message in pieces counts with its last one.
            self._total_messages if last else self._total_messages - 1,
        )
        header, data = seal(
            header,
            entries,
            self._settings.signer,
            body_apart=fragment is not None and self._settings.bodies_apart,
        )
        entries = without_bodies(entries)
        self._total_messages = header.total_messages
        self._total_bytes = header.total_bytes
        if last and isinstance(parcel, Parcel):
            parcel.stretch.appended(self.next_whole)
            parcel.entries = entries  # of a big message the last piece, without the whole body
        self.next_whole += 1
        self._unconfirmed_bytes += len(data)
        # Messages of a repair had their row when first packed.
        first_ms = published[0] if isinstance(parcel, Parcel) else None
        self._in_flight[header.incarnation_sequence] = first_ms
        confirmed = self._log.append_nowait(header, data)
        crash_points.reach("packer.appending" if last else "packer.piece")
        confirmed.add_done_callback(
            partial(self._appended, header, data, entries, parcel if last else None)
        )

    def _appended(
        self,
        header: BatchHeader,
        data: bytes,
        entries: PackedEntries,
        parcel: Parcel | RequestedParcel | None,
        done: asyncio.Future[Any],
    ) -> None:
        self._unconfirmed_bytes -= len(data)
        del self._in_flight[header.incarnation_sequence]
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            self._on_failed(str(error or "the append was cancelled"))
        else:
            self._on_confirmed(Confirmed(header, entries, len(data), parcel))
            if parcel is not None and not isinstance(parcel, Parcel):
                self._requested.discard(parcel)
                parcel.is_logged(header.name)

    def _header(
        self,
        kind: BatchKind,
        name: BatchName,
        first_ms: int,
        last_ms: int,
        fragment: Fragment | None = None,
        total_messages: int = 0,
    ) -> BatchHeader:
        """Build a header; `seal` adds the counts."""
        settings = self._settings
        return BatchHeader(
            kind,
            name,
            self.next_whole,
            self.predecessors,
            self.revision if fragment is None else self._pieces_revision,
            0,
            0,
            total_messages,
            self._total_bytes,
            first_ms,
            last_ms,
            (settings.cluster_id,),
            fragment,
            format=settings.batch_format,
            content=self._pieces_content if kind is BatchKind.FRAGMENT else b"",
        )
