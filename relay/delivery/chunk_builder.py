"""Assembly of a flow's batches into chunks: opens batches and sorts out unpublishable messages.

Void batches, batches that cannot be opened, messages older than the outage window and the site's
own messages are recognised here, before anything is announced or claimed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from hashlib import blake2b

from relay.batches.batch import (
    BatchHead,
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    Flow,
    LoggedBatch,
    Place,
    make_entry,
)
from relay.batches.format import BadBatch
from relay.batches.fragments import FragmentAssembly, FragmentMismatch, message_of
from relay.batches.opened_batch import OpenedEntries, OwnMessage, open_batch
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.delivery.chunk import DeliveryChunk
from relay.delivery.context import DeliveryContext
from relay.delivery.deferred_batches import DeferredBatches
from relay.delivery.flow_queue import Job
from relay.delivery.part_builder import PartBuilder, ReadBatch
from relay.state.codec import encode_name
from relay.state.deferred_entries import DeferredEntry
from relay.state.flow_state import FlowState, in_doubt

log = logging.getLogger(__name__)

CHUNK_ENTRIES = 256
CHUNK_BYTES = 1024 * 1024
_STAMPS_REMEMBERED = 64


class ChunkBuilder:
    """Builder of one flow's chunks: `add` jobs, `take` the chunk when full or at a pause."""

    def __init__(
        self, flow: Flow, state: FlowState, context: DeliveryContext, deferred: DeferredBatches
    ) -> None:
        self._flow = flow
        self._context = context
        self._deferred = deferred
        self._parts = PartBuilder(flow, context)
        self._is_own = flow.origin == context.settings.cluster_id
        self._begun = {state.next.name: state.entry} if state.next else {}
        """First unsettled entry of a batch whose beginning an earlier process settled."""
        self._doubt = dict(in_doubt(state))
        self._assembly = FragmentAssembly()
        self._pieces: dict[BatchName, _Pieces] = {}
        self._chunk = DeliveryChunk()
        self._under_way: list[DeliveryChunk] = []
        """Chunks that were taken and are not over."""

    @property
    def holds_fragments(self) -> bool:
        """True while a big message is incomplete: the position stays before."""
        return self._assembly.begun

    @property
    def is_by_origin(self) -> bool:
        """True if identities of this exchange belong to an origin, by the present mesh."""
        return self._parts.is_by_origin

    def is_full_for(self, batch: LoggedBatch) -> bool:
        """True if the chunk must be delivered before this batch can be added."""
        chunk = self._chunk
        if not chunk.parts:
            return False
        return (
            chunk.is_repair is not (batch.header.kind is BatchKind.REPAIR)
            or len(chunk) + batch.header.entry_count > CHUNK_ENTRIES
            or chunk.byte_count + batch.header.byte_count > CHUNK_BYTES
        )

    def take(self) -> DeliveryChunk:
        """Return the chunk so far, and begin the next. Call `over` once the chunk is settled."""
        chunk, self._chunk = self._chunk, DeliveryChunk()
        if chunk.parts:
            self._under_way.append(chunk)
        return chunk

    def over(self, chunk: DeliveryChunk) -> None:
        """Note that a chunk is settled, or given up."""
        self._under_way.remove(chunk)

    def lacks(self, batch: LoggedBatch) -> bool:
        """True if the batch is needed, and its content is gone."""
        name = batch.header.name
        return isinstance(batch.data, BatchHead) and not (
            name in self._context.settled
            or self._is_in_hand(name)
            or name in self._deferred
            or self._context.voids.is_void(batch.header)
        )

    def add(self, job: Job) -> None:
        """Open the batch and append its messages for this site."""
        header, name = job.batch.header, job.batch.header.name
        context = self._context
        # A reader that was sent back repeats unsettled batches.
        if name in context.settled or self._is_in_hand(name):
            return
        if name in self._deferred:
            self._deferred.met_again(name, job.before)
            return
        self._chunk.is_repair = header.kind is BatchKind.REPAIR
        self._chunk.begun_ms = self._chunk.begun_ms or context.now_ms()
        if context.voids.is_void(header):
            read = ReadBatch(header, (name,), job.point, job.before, OpenedEntries(()))
            part = self._parts.append_empty(self._chunk, read)
            part.void, part.behind_pieces = True, self._assembly.begun
            part.is_passed = self._deferred.forget_unmet(name)
            return
        try:
            if self._assembly.unfinished:
                self._give_up_passed(header)
            opened = open_batch(job.batch.data, header)
            read = ReadBatch(header, (name,), job.point, job.before, opened)
            if header.fragment is not None:
                self._assembly.abandon_earlier(self._flow, name.series.incarnation)
                whole = self._assemble(read)
                if whole is None:
                    return
                read = whole
        except (BadBatch, FragmentMismatch) as error:
            opened = OpenedEntries([_unopened(job.batch)])
            read = ReadBatch(header, (name,), job.point, job.before, opened)
            self._append(read, f"cannot be opened: {error}", job.batch.data)
            return
        self._append(read)

    def _is_in_hand(self, name: BatchName) -> bool:
        return any(name in chunk.names for chunk in (self._chunk, *self._under_way))

    def _give_up_passed(self, header: BatchHeader) -> None:
        voids = self._context.voids

        def has_ended(first: BatchName) -> bool:
            return voids.end_of(first.series.origin, first.series.incarnation) is not None

        for first in self._assembly.abandon_passed(header, has_ended):
            if first.series.incarnation == header.name.series.incarnation:
                # Otherwise the next incarnation has packed the message anew.
                log.error(
                    "the message that begins with %s will never be complete",
                    first,
                    extra={"event": "message-incomplete", "batch": str(first)},
                )

    def _append(self, read: ReadBatch, raw_reason: str = "", raw: bytes = b"") -> None:
        chunk, name, count = self._chunk, read.name, len(read.opened)
        first = self._begun.pop(name, 0) if self._begun else 0
        if raw_reason:
            deferred: tuple[DeferredEntry, ...] = ()
            self._deferred.forget_unmet(name)  # no message of it can be told from the others
        elif deferred := self._deferred.take_unmet(name):
            # The flow has passed the batch, unless the batch is its next: all others are settled.
            first = first or count
            self._deferred.met(read, deferred, is_passed=first == count)
        begin = len(chunk)
        part = self._parts.append(chunk, read, first, count, is_raw=bool(raw_reason))
        part.behind_pieces = self._assembly.begun
        part.is_passed = bool(deferred) and not part.count
        whole = len(read.opened.entry(0)[3]) if read.header.fragment and part.count else 0
        chunk.byte_count += max(read.header.byte_count, whole) if part.count else 0
        doubt = self._doubt.pop(name, None) if self._doubt else None
        if doubt is not None:
            numbers = [n - first + begin for n in doubt if n >= first]
            chunk.flagged.update(numbers)
            chunk.sent.update(numbers)  # perhaps, by a former process
        if raw_reason:
            chunk.raw[begin] = raw
            chunk.reasons[begin] = raw_reason

    def _assemble(self, piece: ReadBatch) -> ReadBatch | None:
        """Return the whole message once the last piece is here."""
        header, opened = piece.header, piece.opened
        if len(opened) != 1:
            raise FragmentMismatch(header.name, f"{len(opened)} entries in a fragment's batch")
        first, _ = message_of(header)
        self._pieces = {key: value for key, value in self._pieces.items() if key == first}
        if not self._pieces and first != header.name:
            log.warning(
                "%s came without the pieces before it; they may be gone",
                header.name,
                extra={"event": "pieces-missing", "batch": str(header.name)},
            )
        content = header.content if self._is_own else b""
        pieces = self._pieces.setdefault(first, _Pieces(piece.before, content))
        pieces.names.append(header.name)
        entry = make_entry(opened.entry(0))
        if pieces.content:
            entry = entry._replace(body=b"")  # published by nobody here, and its hash is known
        whole = self._assembly.add(header, entry)
        if whole is None:
            return None
        del self._pieces[first]
        message = OwnMessage(whole, pieces.content) if pieces.content else OpenedEntries([whole])
        return ReadBatch(header, tuple(pieces.names), piece.point, pieces.before, message)


@dataclass(slots=True)
class _Pieces:
    """Pieces of an unfinished message that came, without their bodies, which the assembly has."""

    before: Place | None
    """Place before the first piece; None: the log's start."""
    content: bytes
    """Hash of the whole message's content, where the body is not needed; else empty."""
    names: list[BatchName] = field(default_factory=list)


def _unopened(batch: LoggedBatch) -> Entry:
    """Represent a batch that cannot be opened as one message, for the quarantine."""
    identity = blake2b(encode_name(batch.header.name), digest_size=16).digest()
    return Entry(identity, b"", NONE_PRESENT, b"", batch.header.first_published_ms)
