"""The deduplication filter in front of local delivery: judge, claim, then commit or release.

    judge    is each key known?  NEW and CONFLICT are to be delivered and are claimed (memory)
    commit   what was delivered goes into the store's changes, beside the flow's next place
    release  what was not delivered is nobody's again: a later copy is delivered

What was delivered is remembered for one to two windows: `dedup.generations`.

Same identity, other content: never suppressed. It is delivered as a CONFLICT and remembered under
a second key made of both, so that a further copy of that same other content is a duplicate.

What a repair brings is judged by `judge_repair`: it goes past what is remembered where the site has
no proof of a delivery, and is remembered under a key of its own besides, so that the same repair
done twice is suppressed the second time.

What is remembered under a key: 8 bytes of the content's hash, then the place that delivered it.

No clock, no coroutine: callers say what time it is, and are called back when a claim ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import add

from dedup.generations import Generations
from dedup.judgement import BarrierMisuse, Judgement, Verdict
from dedup.keys import repair_key, second_key
from dedup.store import Changes, Store

CONTENT_KEPT = 8
"""Bytes of a content hash that are kept and compared."""


class Barrier:
    """One site's barrier. `window_ms` is `outage_window` plus its margin; `meta_table` is any
    table of the store, for two small records."""

    def __init__(self, store: Store, window_ms: int, *, meta_table: str) -> None:
        self._memory = Generations(store, window_ms, meta_table=meta_table)
        self._claims: dict[bytes, Judgement] = {}
        self._waiting: dict[bytes, list[Callable[[], None]]] = {}
        self._owed: dict[bytes, bytes] = {}
        """First keys of conflicts whose own first message came to nothing: they go into the next
        commit."""

    def set_window(self, window_ms: int) -> None:
        """The window is another from now on; see `Generations.set_window`."""
        self._memory.set_window(window_ms)

    @property
    def memory_ms(self) -> int:
        """How far back all is remembered. Of what is older, nobody can say whether it is new."""
        return self._memory.memory_ms

    def rotate_if_due(self, now_ms: int) -> bool:
        """To be called every minute or so; see `Generations.rotate_if_due`."""
        return self._memory.rotate_if_due(now_ms)

    @property
    def claims(self) -> int:
        """How many claims are open."""
        return len(self._claims)

    # -- judge -------------------------------------------------------------------------------

    def judge(
        self,
        claimant: object,
        keys: list[bytes],
        contents: list[bytes],
        places: list[bytes],
    ) -> Judgement:
        """Verdicts for messages in their order; those to be delivered are claimed at once.

        `keys` are barrier keys, `contents` at least 8 bytes of each content hash, `places` say
        where each message stands (any bytes of one length, the same for the same place).
        """
        contents = [content[:CONTENT_KEPT] for content in contents]
        known = self._known(keys)
        judgement = Judgement(claimant, keys, contents, places, [], {}, {}, None, True)
        if (
            known is None
            and self._claims.keys().isdisjoint(keys)
            and len(distinct := dict.fromkeys(keys, judgement)) == len(keys)
        ):
            # The common case by far, and the one that is counted in nanoseconds.
            judgement.verdicts = [Verdict.NEW] * len(keys)
            self._claims.update(distinct)
            return judgement
        judgement.whole = False
        for index, key in enumerate(keys):
            found = None if known is None else known[index]
            verdict = self._judge_one(judgement, index, key, found)
            judgement.verdicts.append(verdict)
            if verdict is Verdict.CLAIMED:
                break
        return judgement

    def judge_repair(
        self,
        claimant: object,
        keys: list[bytes],
        contents: list[bytes],
        places: list[bytes],
        unproven: Collection[bytes] = (),
        delivered: Collection[bytes] = (),
    ) -> Judgement:
        """As `judge`, for what a repair sends again: DUPLICATE what a repair has brought before.

        `unproven`: keys, as `remembered` gave them, of messages that are remembered here although
        the site's ledger has no delivery of them. Those are NEW; what else is remembered is not.
        `delivered`: keys, as `not_remembered` gave them, of which the ledger has a delivery.
        """
        contents = [content[:CONTENT_KEPT] for content in contents]
        judgement = Judgement(claimant, keys, contents, places, [], {}, {}, None, False)
        for index in range(len(keys)):
            verdict = self._judge_repaired(judgement, index, unproven, delivered)
            judgement.verdicts.append(verdict)
            if verdict is Verdict.CLAIMED:
                break
        return judgement

    def remembered(self, keys: list[bytes], contents: list[bytes]) -> dict[int, bytes]:
        """Index -> key under which this very message is remembered, of those that are and were
        brought by no repair: whether they were delivered, the site's ledger has to say.
        """
        found = {}
        for index, (key, content) in enumerate(zip(keys, contents, strict=True)):
            key, kept = self._remembered_as(key, content[:CONTENT_KEPT])
            if kept is not None and self._recall(repair_key(key)) is None:
                found[index] = key
        return found

    def not_remembered(self, keys: list[bytes], contents: list[bytes]) -> dict[int, bytes]:
        """Index -> key under which this very message would be remembered, of those that are not:
        what is older than `memory_ms` may have been delivered and forgotten.
        """
        found = {}
        for index, (key, content) in enumerate(zip(keys, contents, strict=True)):
            key, kept = self._remembered_as(key, content[:CONTENT_KEPT])
            if kept is None and self._recall(repair_key(key)) is None:
                found[index] = key
        return found

    def delivered_from(self, key: bytes) -> bytes | None:
        """The place from which the message that is remembered under `key` was delivered."""
        kept = self._recall(key)
        return None if kept is None else kept[CONTENT_KEPT:]

    def _remembered_as(self, key: bytes, content: bytes) -> tuple[bytes, bytes | None]:
        """The key that this message has here (a conflict's second one), and what is kept."""
        kept = self._recall(key)
        if kept is not None and kept[:CONTENT_KEPT] != content:
            key = second_key(key, content)
            kept = self._recall(key)
        return key, kept

    def _judge_repaired(
        self,
        judgement: Judgement,
        index: int,
        unproven: Collection[bytes],
        delivered: Collection[bytes],
    ) -> Verdict:
        first, content = judgement.keys[index], judgement.contents[index]
        key, kept = self._remembered_as(first, content)
        again = repair_key(key)
        if (brought := self._recall(again)) is not None:
            return self._same(judgement, index, again, brought)
        if kept is None:
            if key in delivered:
                return Verdict.DUPLICATE
            verdict = self._judge_one(judgement, index, first, self._recall(first))
            if verdict is Verdict.NEW or verdict is Verdict.CONFLICT:
                judgement.repair_keys[index] = repair_key(judgement.second_keys.get(index, first))
            return verdict
        if key not in unproven:
            return Verdict.DUPLICATE
        if again in self._claims:
            return self._same(judgement, index, again, None)
        # Of what is remembered nobody else can make anything: the claim is among repairs.
        judgement.second_keys[index] = again
        self._claims[again] = judgement
        return Verdict.NEW

    def _known(self, keys: list[bytes]) -> list[bytes | None] | None:
        """What is remembered under each key; None if nothing under any."""
        known = self._memory.known(keys)
        if self._owed:
            known = [
                kept if kept is not None else self._owed.get(key)
                for key, kept in zip(keys, known, strict=True)
            ]
        return None if known.count(None) == len(keys) else known

    def _recall(self, key: bytes) -> bytes | None:
        known = self._known([key])
        return None if known is None else known[0]

    def _judge_one(
        self, judgement: Judgement, index: int, key: bytes, found: bytes | None
    ) -> Verdict:
        content = judgement.contents[index]
        if found is not None:
            first_content = found[:CONTENT_KEPT]
        else:
            holder = self._claims.get(key)
            if holder is None:
                self._claims[key] = judgement
                return Verdict.NEW
            if holder.claimant != judgement.claimant:
                # Whatever its content: only its outcome says whether ours is new, a duplicate or
                # a conflict.
                judgement.blocked_on = key
                return Verdict.CLAIMED
            first_content = holder.contents[holder.keys.index(key)]
        if first_content == content:
            return self._same(judgement, index, key, found)
        second = second_key(key, content)
        found = self._recall(second)
        if found is None and second not in self._claims:
            judgement.second_keys[index] = second
            self._claims[second] = judgement
            return Verdict.CONFLICT
        return self._same(judgement, index, second, found)

    def _same(self, judgement: Judgement, index: int, key: bytes, found: bytes | None) -> Verdict:
        """The verdict on what is known or claimed with this very content."""
        if found is not None:
            again = found[CONTENT_KEPT:] == judgement.places[index]
            return Verdict.REPLAY if again else Verdict.DUPLICATE
        holder = self._claims[key]
        if holder.claimant != judgement.claimant:
            judgement.blocked_on = key
            return Verdict.CLAIMED
        judgement.twins[index] = _index_of(judgement, key) if holder is judgement else None
        return Verdict.TWIN

    def when_released(self, judgement: Judgement, callback: Callable[[], None]) -> None:
        """Call back once the claim that ended `judgement` as CLAIMED has ended, either way; at
        once if it has already. Then judge again from there."""
        key = judgement.blocked_on
        if key is None:
            raise BarrierMisuse("this judgement was not ended by a claim")
        if key not in self._claims:
            callback()
            return
        self._waiting.setdefault(key, []).append(callback)

    # -- commit and release ------------------------------------------------------------------

    def commit(
        self,
        judgement: Judgement,
        changes: Changes,
        begin: int = 0,
        end: int | None = None,
        *,
        undelivered: frozenset[int] = frozenset(),
    ) -> None:
        """End the claims of entries begin..end: remember the delivered ones in `changes`.

        `undelivered` are the indices that came to nothing (dead letter, quarantine): released.
        What ended before, by `commit_early` or `release`, is passed over. Write `changes` at
        once, in the same turn of the event loop: the claims are gone, and until the write nothing
        else knows these messages. Raises BarrierMisuse when a range is committed twice.
        """
        end = len(judgement) if end is None else end
        if judgement.whole and not undelivered and not self._waiting:
            # No look at single entries.
            keys, contents, places = judgement.keys, judgement.contents, judgement.places
            if end - begin != len(keys):
                keys, contents, places = keys[begin:end], contents[begin:end], places[begin:end]
            claims = self._claims
            for key in keys:
                if claims.pop(key, None) is not judgement:
                    raise BarrierMisuse("an entry was committed twice, or after its release")
            changes.table(self._memory.young_table).update(
                zip(keys, map(add, contents, places), strict=True)
            )
        else:
            for index in range(begin, end):
                if self._holds(judgement, index):
                    self._end_claim(judgement, index, changes, index not in undelivered)
        if self._owed:
            changes.table(self._memory.young_table).update(self._owed)
            self._owed.clear()

    def commit_early(self, judgement: Judgement, changes: Changes, indices: Iterable[int]) -> None:
        """As `commit`, for delivered entries that stand behind one that is not settled yet: a
        flow that starts again before them will find them as REPLAY.
        """
        for index in indices:
            self._end_claim(judgement, index, changes, True)

    def release(self, judgement: Judgement, begin: int = 0, end: int | None = None) -> None:
        """End the claims of entries begin..end that still are: they were not delivered."""
        end = len(judgement) if end is None else end
        for index in range(begin, end):
            if self._holds(judgement, index):
                self._end_claim(judgement, index, None, False)

    def _holds(self, judgement: Judgement, index: int) -> bool:
        if judgement.verdicts[index] > Verdict.CONFLICT:
            return False
        key = judgement.second_keys.get(index, judgement.keys[index])
        return self._claims.get(key) is judgement

    def _end_claim(
        self, judgement: Judgement, index: int, changes: Changes | None, delivered: bool
    ) -> None:
        first = judgement.keys[index]
        key = judgement.second_keys.get(index, first)
        if self._claims.pop(key, None) is not judgement:
            raise BarrierMisuse("an entry was committed twice, or after its release")
        judgement.whole = False
        if delivered:
            assert changes is not None
            value = judgement.contents[index] + judgement.places[index]
            table = changes.table(self._memory.young_table)
            table[key] = value
            if index in judgement.repair_keys:
                table[judgement.repair_keys[index]] = value
            if key is not first and first not in table and self._recall(first) is None:
                # What it conflicted with is not delivered (yet). Then this content must stop its
                # own further copies; if the other is delivered after all, it writes over it.
                if first in self._claims:
                    self._owed[first] = value
                else:
                    table[first] = value
        for callback in self._waiting.pop(key, ()):
            callback()


def _index_of(judgement: Judgement, key: bytes) -> int:
    for index, second in judgement.second_keys.items():
        if second == key:
            return index
    return judgement.keys.index(key)
