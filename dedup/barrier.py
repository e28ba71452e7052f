"""The deduplication filter in front of local delivery: judge, claim, then commit or release.

    judge    is each key known?  NEW and CONFLICT are to be delivered and are claimed (memory)
    commit   what was delivered goes into the store's changes, beside the flow's next place
    release  what was not delivered is nobody's again: a later copy is delivered

Memory of the window is two generations, tables of their own: new keys go into the young one, both
are asked, and when the young one is older than the window the old one is emptied (O(1), whatever
its size) and becomes the young one. So a key is remembered for one to two windows. What ages a
generation is time that passed while the node watched: a clock set wrong never empties one early.

Same identity, other content: never suppressed. It is delivered as a CONFLICT and remembered under
a second key made of both, so that a further copy of that same other content is a duplicate.

What is remembered under a key: 8 bytes of the content's hash, then the place that delivered it.

No clock, no coroutine: callers say what time it is, and are called back when a claim ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from operator import add
from struct import Struct

from dedup.store import Changes, Store

GENERATIONS = ("barrier.a", "barrier.b")
"""The barrier's tables; read by single keys."""
CONTENT_KEPT = 8
"""Bytes of a content hash that are kept and compared."""

MAX_AGEING_MS = 3_600_000
"""How much one look at the clock can age a generation; `rotate_if_due` is called far more often."""

_GENERATION_KEY = b"barrier.generation"
_MEMORY_KEY = b"barrier.memory"
_GENERATION = Struct(">BQQ")
"""Which table is young, its age in ms, when the clock was last looked at (ms since 1970)."""


class Verdict(IntEnum):
    """What the barrier says about one message."""

    NEW = 1
    """Never seen: deliver. Claimed by this judgement."""
    CONFLICT = 2
    """The identity was seen with other content: deliver and count. Claimed by this judgement."""
    DUPLICATE = 3
    """Delivered before from another place: suppress."""
    REPLAY = 4
    """Delivered before from this very place: nothing to do, nothing to count."""
    TWIN = 5
    """The same as an earlier message that this claimant has in hand, not committed yet: a
    duplicate if that one is delivered; else release from here on and judge again."""
    CLAIMED = 6
    """Being delivered by another flow at this moment: wait for its outcome, judge again. Always
    the last verdict of a judgement: what is behind it must wait too, and a flow that waits holds
    no claim on it (else two flows could wait for each other for ever)."""


class BarrierMisuse(Exception):
    """The caller broke the order of judge, commit, release: a mistake of ours."""


@dataclass(slots=True)
class Judgement:
    """The answer to one `judge`, and the claims that it holds. Parts may end one by one.

    There are as many verdicts as messages, or fewer when the last is CLAIMED.
    """

    claimant: object
    keys: list[bytes]
    contents: list[bytes]
    places: list[bytes]
    verdicts: list[Verdict]
    second_keys: dict[int, bytes]
    """Index -> the key under which a CONFLICT is remembered."""
    twins: dict[int, int | None]
    """Index of a TWIN -> index of the message it repeats; None: one of an earlier judgement."""
    blocked_on: bytes | None
    """The claimed key that ended the judgement."""
    whole: bool
    """Every verdict is NEW and no entry was committed or released on its own."""

    def __len__(self) -> int:
        return len(self.verdicts)


def is_beyond_window(
    published_ms: int, now_ms: int, window_ms: int, clock_difference_ms: int = 0
) -> bool:
    """Whether a message is older than the barrier's memory, so that nobody can say if it is new.

    `clock_difference_ms` is the origin's clock minus ours, as the links measure it. One from the
    future is not beyond: a clock that is merely off is warned of, not obeyed.
    """
    return now_ms - (published_ms - clock_difference_ms) > window_ms


class Barrier:
    """One site's barrier. `window_ms` is `outage_window` plus its margin; `meta_table` is any
    table of the store, for one small record."""

    def __init__(self, store: Store, window_ms: int, *, meta_table: str) -> None:
        self._store = store
        self._meta_table = meta_table
        self._window_ms = window_ms
        self._claims: dict[bytes, Judgement] = {}
        self._waiting: dict[bytes, list[Callable[[], None]]] = {}
        self._owed: dict[bytes, bytes] = {}
        """First keys of conflicts whose own first message came to nothing: they go into the next
        commit."""
        kept = store.get(self._meta_table, _GENERATION_KEY)
        self._young: int = 0
        self._age_ms: int = 0
        self._seen_ms: int | None = None
        if kept is not None:
            self._young, self._age_ms, self._seen_ms = _GENERATION.unpack(kept)
        self._old_is_empty = self._is_empty(self._old_table)
        remembered = store.get(self._meta_table, _MEMORY_KEY)
        # Without a record the window has never been another one.
        self._memory_ms = window_ms if remembered is None else int.from_bytes(remembered)
        self.set_window(window_ms)

    def set_window(self, window_ms: int) -> None:
        """The window is another from now on. A longer one is remembered only as time goes by:
        what was forgotten before the change stays forgotten, see `memory_ms`.
        """
        self._window_ms = window_ms
        self._memory_ms = min(self._memory_ms, window_ms)

    @property
    def memory_ms(self) -> int:
        """How far back all is remembered: the window, or less for a while after it has grown. Of
        what is older, nobody can say whether it is new.
        """
        return self._memory_ms

    @property
    def _young_table(self) -> str:
        return GENERATIONS[self._young]

    @property
    def _old_table(self) -> str:
        return GENERATIONS[1 - self._young]

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

    def _known(self, keys: list[bytes]) -> list[bytes | None] | None:
        """What is remembered under each key; None if nothing under any."""
        young = self._store.get_many(self._young_table, keys)
        if self._old_is_empty:
            known = young
        else:
            old = self._store.get_many(self._old_table, keys)
            known = [a if a is not None else b for a, b in zip(young, old, strict=True)]
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
            changes.table(self._young_table).update(
                zip(keys, map(add, contents, places), strict=True)
            )
        else:
            for index in range(begin, end):
                if self._holds(judgement, index):
                    self._end_claim(judgement, index, changes, index not in undelivered)
        if self._owed:
            changes.table(self._young_table).update(self._owed)
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
            table = changes.table(self._young_table)
            table[key] = value
            if key is not first and first not in table and self._recall(first) is None:
                # What it conflicted with is not delivered (yet). Then this content must stop its
                # own further copies; if the other is delivered after all, it writes over it.
                if first in self._claims:
                    self._owed[first] = value
                else:
                    table[first] = value
        for callback in self._waiting.pop(key, ()):
            callback()

    # -- the window --------------------------------------------------------------------------

    def rotate_if_due(self, now_ms: int) -> bool:
        """Forget the old generation if the young one covers the whole window. True if so.

        To be called every minute or so. A node that was down, or whose clock jumped, ages its
        generation by no more than MAX_AGEING_MS: too long a memory costs disk, too short a one
        would repeat messages.
        """
        passed_ms = 0 if self._seen_ms is None else now_ms - self._seen_ms
        passed_ms = min(max(passed_ms, 0), MAX_AGEING_MS)
        self._age_ms += passed_ms
        self._memory_ms = min(self._memory_ms + passed_ms, self._window_ms)
        self._seen_ms = now_ms
        due = self._age_ms > self._window_ms
        if due:
            # First emptied, then named young: killed in between, it is emptied again.
            self._store.clear_table(self._old_table)
            self._young, self._age_ms = 1 - self._young, 0
        changes = Changes()
        value = _GENERATION.pack(self._young, self._age_ms, now_ms)
        changes.put(self._meta_table, _GENERATION_KEY, value)
        changes.put(self._meta_table, _MEMORY_KEY, self._memory_ms.to_bytes(8))
        self._store.write(changes)
        if due:
            self._old_is_empty = self._is_empty(self._old_table)
        return due

    def _is_empty(self, table: str) -> bool:
        for _ in self._store.scan(table):
            return False
        return True


def second_key(key: bytes, content: bytes) -> bytes:
    """Where a CONFLICT is remembered: the scope of `key`, and a hash of identity and content."""
    return key[:-16] + blake2b(key[-16:] + content, digest_size=16, person=b"conflict").digest()


def place_prefix(batch_name: bytes) -> bytes:
    """8 bytes that stand for a batch (by its encoded name) in places; made once a batch."""
    return blake2b(batch_name, digest_size=8).digest()


def places_of(prefix: bytes, begin: int, end: int) -> list[bytes]:
    """The places of entries begin..end of a batch: 10 bytes each."""
    return [prefix + index.to_bytes(2) for index in range(begin, end)]


def _index_of(judgement: Judgement, key: bytes) -> int:
    for index, second in judgement.second_keys.items():
        if second == key:
            return index
    return judgement.keys.index(key)
