"""Assembly of a flow's batches into chunks: opens batches and sorts out unpublishable messages.

Void batches, batches that cannot be opened, messages older than the outage window and the site's
own messages are recognised here, before anything is announced or claimed.
"""

from __future__ import annotations

import logging
from hashlib import blake2b

from dedup.generations import is_beyond_window
from dedup.identity import scope_prefix
from dedup.keys import place_prefix, places_of
from federation.mesh import IdentityScope
from relay.batches.batch import (
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    Flow,
    LoggedBatch,
    make_entry,
)
from relay.batches.format import BadBatch
from relay.batches.fragments import FragmentAssembly, FragmentMismatch, message_of
from relay.batches.mesh_headers import message_origin
from relay.batches.opened_batch import OpenedBatch, OpenedEntries, open_batch
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.delivery.chunk import DeliveryChunk, Part
from relay.delivery.context import DeliveryContext
from relay.delivery.flow_queue import Job
from relay.delivery.properties import DeliveryStamp
from relay.ledger.rows import Outcome
from relay.state.codec import encode_name
from relay.state.flow_state import FlowState, in_doubt

log = logging.getLogger(__name__)

CHUNK_ENTRIES = 256
CHUNK_BYTES = 1024 * 1024
_STAMPS_REMEMBERED = 64


class ChunkBuilder:
    """Builder of one flow's chunks: `add` jobs, `take` the chunk when full or at a pause."""

    def __init__(self, flow: Flow, state: FlowState, context: DeliveryContext) -> None:
        self._flow = flow
        self._context = context
        self._own = flow.origin == context.settings.cluster_id
        self._begun = {state.next.name: state.entry} if state.next else {}
        """First unsettled entry of a batch whose beginning an earlier process settled."""
        self._doubt = dict(in_doubt(state))
        self._assembly = FragmentAssembly()
        self._pieces: dict[BatchName, list[BatchName]] = {}
        self._chunk = DeliveryChunk()
        self._under_way: list[DeliveryChunk] = []
        """Chunks that were taken and are not over."""
        self._prefixes: dict[str | None, bytes] = {}
        self._stamps: dict[tuple[str, ...], DeliveryStamp] = {}

    @property
    def holds_fragments(self) -> bool:
        """True while a big message is incomplete: the position stays before."""
        return self._assembly.begun

    @property
    def is_by_origin(self) -> bool:
        """True if identities of this exchange belong to an origin, by the present mesh."""
        exchange = self._context.mesh.exchanges.get(self._flow.exchange)
        return exchange is not None and exchange.scope is IdentityScope.ORIGIN

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

    def add(self, job: Job) -> None:
        """Open the batch and append its messages for this site."""
        header, name = job.batch.header, job.batch.header.name
        context = self._context
        # A reader that was sent back repeats unsettled batches.
        if name in context.settled or self._is_in_hand(name):
            return
        self._chunk.is_repair = header.kind is BatchKind.REPAIR
        self._chunk.begun_ms = self._chunk.begun_ms or context.now_ms()
        if context.voids.is_void(header):
            self._part(job, (name,), OpenedEntries(()), void=True)
            return
        try:
            if self._assembly.unfinished:
                self._give_up_passed(header)
            opened = open_batch(job.batch.data, header)
            names: tuple[BatchName, ...] = (name,)
            if header.fragment is not None:
                self._assembly.abandon_earlier(self._flow, name.series.incarnation)
                whole = self._assemble(job, opened)
                if whole is None:
                    return
                opened = OpenedEntries([whole])
                names = tuple(self._pieces.pop(message_of(header)[0]))
        except (BadBatch, FragmentMismatch) as error:
            reason = f"cannot be opened: {error}"
            self._append(job, (name,), OpenedEntries([_unopened(job.batch)]), raw_reason=reason)
            return
        self._append(job, names, opened)

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

    def _append(
        self, job: Job, names: tuple[BatchName, ...], opened: OpenedBatch, raw_reason: str = ""
    ) -> None:
        first = self._begun.pop(names[-1], 0) if self._begun else 0
        chunk = self._chunk
        begin = len(chunk)
        header, count = job.batch.header, len(opened)
        is_repair = header.kind is BatchKind.REPAIR
        origin = header.name.series.origin
        if is_repair and count:
            origin = message_origin(header, [make_entry(opened.entry(0))])
        part = self._part(job, names, opened, first=first, origin=origin)
        whole = len(opened.entry(first)[3]) if header.fragment else 0
        chunk.byte_count += max(header.byte_count, whole)
        chunk.hashes += opened.contents(first, count)
        chunk.keys += opened.keys(self._scope(origin), first, count)
        chunk.places += places_of(place_prefix(encode_name(names[-1])), first, count)
        own = self._own and not is_repair
        chunk.outcomes += [Outcome.OWN if own else Outcome.PENDING] * part.count
        doubt = self._doubt.pop(names[-1], None) if self._doubt else None
        if doubt is not None:
            numbers = [n - first + begin for n in doubt if n >= first]
            chunk.flagged.update(numbers)
            chunk.sent.update(numbers)  # perhaps, by a former process
        chunk.flagged.update(begin + n - first for n in opened.doubtful() if n >= first)
        if raw_reason:
            chunk.raw[begin] = job.batch.data
            chunk.reasons[begin] = raw_reason
        elif not self._own and not is_repair and self._is_too_old(header):
            for number in range(begin, part.end):
                chunk.reasons[number] = "older than the outage window"

    def _part(
        self,
        job: Job,
        names: tuple[BatchName, ...],
        opened: OpenedBatch,
        *,
        first: int = 0,
        void: bool = False,
        origin: str = "",
    ) -> Part:
        header = job.batch.header
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
            names,
            job.point,
            stamp,
            opened,
            start=len(self._chunk),
            first=first,
            count=len(opened) - first,
            void=void,
            behind_pieces=self._assembly.begun,
        )
        if header.kind is BatchKind.REPAIR:
            part.repaired_of = origin or header.name.series.origin
        self._chunk.parts.append(part)
        self._chunk.names.update(names)
        return part

    def _assemble(self, job: Job, opened: OpenedBatch) -> Entry | None:
        """Return the whole message once the last piece is here."""
        header = job.batch.header
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
        self._pieces.setdefault(first, []).append(header.name)
        return self._assembly.add(header, make_entry(opened.entry(0)))

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


def _unopened(batch: LoggedBatch) -> Entry:
    """Represent a batch that cannot be opened as one message, for the quarantine."""
    identity = blake2b(encode_name(batch.header.name), digest_size=16).digest()
    return Entry(identity, b"", NONE_PRESENT, b"", batch.header.first_published_ms)
