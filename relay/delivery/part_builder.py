"""Parts of chunks, made of batches as they were read: keys, hashes and stamps of their messages."""

from __future__ import annotations

from dataclasses import dataclass

from dedup.generations import is_beyond_window
from dedup.identity import scope_prefix
from dedup.keys import place_prefix, places_of
from federation.mesh import IdentityScope
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Flow, Place, make_entry
from relay.batches.mesh_headers import message_origin
from relay.batches.opened_batch import OpenedBatch
from relay.delivery.chunk import DeliveryChunk, Part
from relay.delivery.context import DeliveryContext
from relay.delivery.properties import DeliveryStamp
from relay.delivery.settlement import Point
from relay.ledger.rows import Outcome
from relay.state.codec import encode_name

_STAMPS_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Batch as read from the log, or a big message put together from its pieces."""

    header: BatchHeader
    """Header of the batch, or of the last piece."""
    names: tuple[BatchName, ...]
    """Name of the batch, or of all pieces."""
    point: Point
    before: Place | None
    """Place before the batch, or before the first piece; None: the log's start."""
    opened: OpenedBatch

    @property
    def name(self) -> BatchName:
        """Name of the batch, or of the last piece."""
        return self.names[-1]


class PartBuilder:
    """Builder of the parts of one flow's chunks."""

    def __init__(self, flow: Flow, context: DeliveryContext) -> None:
        self._flow = flow
        self._context = context
        self._own = flow.origin == context.settings.cluster_id
        self._prefixes: dict[str | None, bytes] = {}
        self._stamps: dict[tuple[str, ...], DeliveryStamp] = {}

    @property
    def is_by_origin(self) -> bool:
        """True if identities of this exchange belong to an origin, by the present mesh."""
        exchange = self._context.mesh.exchanges.get(self._flow.exchange)
        return exchange is not None and exchange.scope is IdentityScope.ORIGIN

    def append(
        self, chunk: DeliveryChunk, read: ReadBatch, first: int, last: int, *, is_raw: bool = False
    ) -> Part:
        """Append the messages from `first` to `last` (exclusive). `is_raw`: an unopened batch in
        the place of one message.
        """
        header, opened, begin = read.header, read.opened, len(chunk)
        is_repair = header.kind is BatchKind.REPAIR
        origin = header.name.series.origin
        if is_repair and last > first:
            origin = message_origin(header, [make_entry(opened.entry(0))])
        part = self.append_empty(chunk, read, first, origin=origin)
        part.count = last - first
        chunk.hashes += opened.contents(first, last)
        chunk.keys += opened.keys(self._scope(origin), first, last)
        chunk.places += places_of(place_prefix(encode_name(read.name)), first, last)
        own = self._own and not is_repair
        chunk.outcomes += [Outcome.OWN if own else Outcome.PENDING] * part.count
        chunk.flagged.update(begin + n - first for n in opened.doubtful() if first <= n < last)
        if not (is_raw or self._own or is_repair) and self._is_too_old(header):
            for number in range(begin, part.end):
                chunk.reasons[number] = "older than the outage window"
        return part

    def append_empty(
        self, chunk: DeliveryChunk, read: ReadBatch, first: int = 0, *, origin: str = ""
    ) -> Part:
        """Append a part without messages, whose messages would begin at `first`."""
        header = read.header
        path = header.path
        if origin and origin != path[0]:
            path = (origin, *path)  # the origin had the message before the repairing site
        stamp = self._stamps.get(path)
        if stamp is None:
            if len(self._stamps) >= _STAMPS_REMEMBERED:
                self._stamps.clear()
            stamp = DeliveryStamp(self._flow.exchange, path, self._context.settings.user)
            self._stamps[path] = stamp
        part = Part(
            header,
            read.names,
            read.point,
            read.before,
            stamp,
            read.opened,
            start=len(chunk),
            first=first,
        )
        if header.kind is BatchKind.REPAIR:
            part.repaired_of = origin or header.name.series.origin
        chunk.parts.append(part)
        chunk.names.update(read.names)
        return part

    def _is_too_old(self, header: BatchHeader) -> bool:
        context = self._context
        # A slow clock makes the message no younger: the clock may have been right at publishing,
        # and the barrier may have forgotten by now.
        ahead_ms = max(0, context.clock_differences_ms.get(self._flow.origin, 0))
        return is_beyond_window(
            header.first_published_ms, context.now_ms(), context.window_ms, ahead_ms
        )

    def _scope(self, origin: str) -> bytes:
        """Barrier-key prefix: where identities are unique, by the present mesh."""
        within = origin if self.is_by_origin else None
        if within not in self._prefixes:
            self._prefixes[within] = scope_prefix(self._flow.exchange, within)
        return self._prefixes[within]
