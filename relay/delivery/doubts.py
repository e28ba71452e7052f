"""Messages that a former process may have published: claimed as the deliverer starts, before any
flow judges a copy.

A copy by another way may stand before the message in the log, in a flow that stood until the
process died, or that deferred the copy unsent. Judged first, the copy would go out unflagged beside
what is out already. So each flow's batches in doubt, and those of deferred messages that were sent,
are looked up first, and their messages stay claimed until their own flow judges them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from dedup.barrier import Judgement, Verdict
from relay.batches.batch import BatchKind, BatchName, Flow, LoggedBatch
from relay.batches.format import BadBatch
from relay.batches.fragments import FragmentMismatch, message_of
from relay.batches.opened_batch import put_together
from relay.delivery.chunk import DeliveryChunk
from relay.delivery.context import DeliveryContext
from relay.delivery.part_builder import PartBuilder, ReadBatch
from relay.log.site_log import SiteLogError
from relay.state.deferred_entries import DeferredEntry
from relay.state.flow_state import FlowState, in_doubt

READ_BYTES = 256 * 1024


class Doubts:
    """One flow's claims of messages in doubt."""

    def __init__(self, flow: Flow, context: DeliveryContext) -> None:
        self._flow = flow
        self._context = context
        self._claims: dict[BatchName, dict[bytes, Judgement]] = {}
        """Claims by barrier key, by (last) batch name."""

    async def claim(self, state: FlowState) -> None:
        """Look the messages in doubt up in the log, and claim those that no other flow has."""
        settled, parts = self._context.settled, PartBuilder(self._flow, self._context)
        announced = {n: r for n, r in in_doubt(state).items() if n not in settled}
        deferred = {
            name: sent
            for name, entries in self._unmet.items()
            if name not in settled and (sent := [one.number for one in entries if one.was_sent])
        }
        for name, read in (await self._find(state, announced.keys(), deferred.keys())).items():
            one = DeliveryChunk()
            parts.append(one, read, 0, len(read.opened))
            self._claim(name, one, deferred.get(name, ()), is_kept=True)
            self._claim(name, one, announced.get(name, ()))

    def give_up(self, chunk: DeliveryChunk) -> None:
        """End the claims of the chunk's messages, which are judged before the next await."""
        for claims in self._claims.values():
            for key in claims.keys() & set(chunk.keys):
                self._context.barrier.release(claims.pop(key))

    def claim_again(self, chunk: DeliveryChunk, numbers: Iterable[int]) -> None:
        """Claim messages of the chunk that its judgement did not come to, if in doubt."""
        for n in numbers:
            if n in chunk.sent:
                self._claim(chunk.part_of(n).names[-1], chunk, (n,))

    def end(self, name: BatchName) -> None:
        """End the claims of a batch."""
        for judgement in self._claims.pop(name, {}).values():
            self._context.barrier.release(judgement)

    def keep(self, state: FlowState) -> None:
        """End the claims of batches that the flow has passed, with no record of them left."""
        left = {part.name for part in state.intent} | self._unmet.keys()
        for name in self._claims.keys() - left:
            self.end(name)

    def __bool__(self) -> bool:
        return bool(self._claims)

    @property
    def _unmet(self) -> Mapping[BatchName, Sequence[DeferredEntry]]:
        """Deferred messages of batches that the flow has not met."""
        return self._context.deferred.get(self._flow, {})

    def _claim(
        self,
        name: BatchName,
        chunk: DeliveryChunk,
        numbers: Iterable[int],
        *,
        is_kept: bool = False,
    ) -> None:
        barrier, claims = self._context.barrier, self._claims.setdefault(name, {})
        for n in numbers:
            if n >= len(chunk):
                break
            key = chunk.keys[n]
            judgement = barrier.judge(self, [key], [chunk.hashes[n]], [chunk.places[n]])
            if judgement.verdicts[0] <= Verdict.CONFLICT:
                claims[key] = barrier.keep(judgement, 0) if is_kept else judgement

    # -- reading -----------------------------------------------------------------------------

    async def _find(
        self,
        state: FlowState,
        announced: Collection[BatchName],
        deferred: Collection[BatchName],
    ) -> dict[BatchName, ReadBatch]:
        """Read these batches, but for those that the log does not have any more, that count no
        more, or cannot be opened: the flow itself deals with these.
        """
        context = self._context
        found: dict[BatchName, ReadBatch] = {}
        pieces: dict[BatchName, LoggedBatch] = {}
        wanted = {*announced, *deferred}
        start, end = context.settlement.reader.place, await context.or_stop(self._end_of_log())
        # Deferred batches stand up to the flow's next place, announced ones from there on.
        last = None if announced or state.next is None else state.next.name
        if not deferred and state.next and (start is None or start.offset < state.next.offset):
            start = state.next
        reader = context.log.reader(start, name=f"in doubt {self._flow.exchange}")
        try:
            while wanted and end is not None:
                if reader.place is not None and reader.place.offset >= end:
                    break
                batches = await context.next_batches(reader, READ_BYTES)
                if not batches:
                    break
                for batch in batches:
                    name = batch.header.name
                    if _last_piece(batch) in wanted:
                        pieces[name] = batch
                    if name in wanted:
                        wanted.discard(name)
                        found.update(self._opened(batch, pieces))
                    if name == last:
                        return found
        except SiteLogError:
            pass  # the flow meets the gap itself, and stands there
        finally:
            await reader.close()
        return found

    async def _end_of_log(self) -> int | None:
        """Return the last offset at present; None if the log is empty, or closed for good."""
        log = self._context.log
        while not log.ended:
            with contextlib.suppress(SiteLogError):  # `scans` waits for the next connection
                return await (await log.scans()).end()
        return None

    def _opened(
        self, batch: LoggedBatch, pieces: Mapping[BatchName, LoggedBatch]
    ) -> dict[BatchName, ReadBatch]:
        """Return the batch, or the big message that ends with the batch, by name; nothing if the
        batch is void, unwanted, a repair (judged by what the ledger proves), or cannot be opened.
        """
        header, name = batch.header, batch.header.name
        context = self._context
        if (
            header.kind is BatchKind.REPAIR
            or context.voids.is_void(header)
            or not context.wants(batch)
        ):
            return {}
        try:
            if header.fragment is None:
                opened = put_together([batch])
            else:
                first, count = message_of(header)
                names = [BatchName(first.series, first.sequence + n) for n in range(count)]
                opened = put_together([pieces[one] for one in names])
        except (BadBatch, FragmentMismatch, KeyError):
            return {}
        return {name: ReadBatch(header, (name,), context.settlement.reader, None, opened)}


def _last_piece(batch: LoggedBatch) -> BatchName | None:
    """Return the name of the last piece of the message of which the batch is a piece, if any."""
    fragment, name = batch.header.fragment, batch.header.name
    if fragment is None:
        return None
    return BatchName(name.series, name.sequence - fragment.piece + fragment.pieces - 1)
