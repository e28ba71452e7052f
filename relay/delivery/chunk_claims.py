"""Claims of a chunk's messages at the barrier: made as the chunk is judged, ended as it is
saved.
"""

from __future__ import annotations

from collections.abc import Callable

from dedup.barrier import Barrier, Judgement, Verdict
from dedup.store import Changes
from relay.delivery.chunk import UNDELIVERED, DeliveryChunk
from relay.ledger.rows import Outcome


class ChunkClaims:
    """Claims of one flow. `defer` takes in a copy of a deferred message, or returns False."""

    def __init__(self, barrier: Barrier, defer: Callable[[DeliveryChunk, int], bool]) -> None:
        self._barrier = barrier
        self._defer = defer

    def judge(self, chunk: DeliveryChunk, pending: list[int]) -> list[int] | None:
        """Claim the messages that may be published now, and return their numbers; none if another
        flow must be waited for.

        None when the judgement itself settled something: look again.
        """
        if not pending:
            return None
        if not chunk.keys:
            return pending
        whole = len(pending) == len(chunk)
        columns = (
            chunk.keys if whole else [chunk.keys[n] for n in pending],
            chunk.hashes if whole else [chunk.hashes[n] for n in pending],
            chunk.places if whole else [chunk.places[n] for n in pending],
        )
        if chunk.is_repair:
            unproven = {key for key, proven in chunk.proven.items() if not proven}
            delivered = {key for key, was in chunk.forgotten.items() if was}
            judgement = self._barrier.judge_repair(self, *columns, unproven, delivered)
        else:
            judgement = self._barrier.judge(self, *columns)
        chunk.judgement = judgement
        if judgement.whole:
            chunk.judged = {n: index for index, n in enumerate(pending)}
            return pending
        return self._sort(chunk, pending, judgement)

    def _sort(
        self, chunk: DeliveryChunk, pending: list[int], judgement: Judgement
    ) -> list[int] | None:
        chunk.judged = {}
        ready: list[int] = []
        settled = False
        # The last verdict is CLAIMED where another flow has that message in hand: messages
        # behind have to wait as well, and were not judged.
        for index, verdict in enumerate(judgement.verdicts):
            number = pending[index]
            if verdict is Verdict.DUPLICATE:
                chunk.outcomes[number] = Outcome.DUPLICATE
                if (why := chunk.not_proven.get(number)) is not None:
                    chunk.reasons[number] = f"not delivered again: {why}"
                settled = True
            elif verdict is Verdict.REPLAY:
                chunk.outcomes[number] = Outcome.DELIVERED
                settled = True
            elif verdict is Verdict.NEW or verdict is Verdict.CONFLICT:
                if verdict is Verdict.CONFLICT:
                    chunk.conflicts.add(number)
                chunk.judged[number] = index
                ready.append(number)
            elif verdict is Verdict.DEFERRED:
                settled = self._defer(chunk, number) or settled
            # A TWIN stays pending, and is judged anew once the repeated message is settled.
        return ready if ready or not settled else None

    def enter(self, chunk: DeliveryChunk, begin: int) -> int:
        """Claim the site's own messages from `begin` on; return the number of messages judged."""
        judgement = self._barrier.judge(
            self, chunk.keys[begin:], chunk.hashes[begin:], chunk.places[begin:]
        )
        chunk.judgement = judgement
        chunk.judged = {
            begin + index: index
            for index, verdict in enumerate(judgement.verdicts)
            if verdict <= Verdict.CONFLICT
        }
        return len(judgement)

    def end(self, chunk: DeliveryChunk, changes: Changes) -> None:
        """End the claims of all judged messages that are settled by now."""
        judgement, judged = chunk.judgement, chunk.judged
        if judgement is None or not judged:
            return
        barrier, outcomes = self._barrier, chunk.outcomes
        settled = [n for n in judged if outcomes[n] is not Outcome.PENDING]
        undelivered = [n for n in settled if outcomes[n] in UNDELIVERED]
        if judgement.whole and len(settled) == len(judged):
            indices = frozenset(judged[n] for n in undelivered)
            barrier.commit(judgement, changes, undelivered=indices)
            judged.clear()
            return
        barrier.commit_early(
            judgement, changes, [judged[n] for n in settled if outcomes[n] not in UNDELIVERED]
        )
        for number in undelivered:
            barrier.release(judgement, judged[number], judged[number] + 1)
        for number in settled:
            del judged[number]

    def release(self, chunk: DeliveryChunk) -> None:
        """End all open claims of the chunk, whose messages were not delivered."""
        if chunk.judgement is not None:
            self._barrier.release(chunk.judgement)
            chunk.judged = {}
        while chunk.kept:
            self._barrier.release(chunk.kept.popitem()[1])


def keep_claim(barrier: Barrier, chunk: DeliveryChunk, number: int) -> Judgement | None:
    """Keep the open claim of a message that is deferred; None if the message has none."""
    index = chunk.judged.pop(number, None)
    if index is None or chunk.judgement is None:
        return None
    return barrier.keep(chunk.judgement, index)
