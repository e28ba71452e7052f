"""Deduplication filter in front of local delivery: judge, claim, then commit or release.

    judge    is each key known?  NEW and CONFLICT are to be delivered and are claimed (memory)
    commit   delivered messages go into the store's changes, beside the flow's next place
    keep     a deferred message keeps its claim while its flow goes on
    release  undelivered messages are free again: a later copy is delivered

Delivered messages are remembered for one to two windows: `dedup.generations`.

Messages with the same identity and other content are never suppressed. They are delivered as a
CONFLICT and remembered under a second key made of both, so that a further copy of the other content
is a duplicate.

Repairs are judged by `judge_repair`: they pass the memory where the site has no proof of a
delivery, and are remembered under a key of their own besides, so that a repeated repair is
suppressed.

The value under a key: 8 bytes of the content's hash, then the place of the delivery.

No clock, no coroutine: callers pass the time, and are called back when a claim ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import repeat
from operator import add

from dedup.generations import Generations
from dedup.keys import repair_key, second_key
from dedup.store import Changes, Store

CONTENT_KEPT = 8
"""Bytes of a content hash that are kept and compared."""


class Verdict(IntEnum):
    """Verdict of the barrier on one message."""

    NEW = 1
    """Never seen: deliver. Claimed by this judgement."""
    CONFLICT = 2
    """Identity seen with other content: deliver and count. Claimed by this judgement."""
    DUPLICATE = 3
    """Delivered before from another place: suppress."""
    REPLAY = 4
    """Delivered before from the same place: neither deliver nor count."""
    TWIN = 5
    """Copy of an earlier message that the same claimant holds uncommitted: a duplicate if the
    earlier one is delivered; otherwise release from here on and judge again."""
    CLAIMED = 6
    """Being delivered by another flow now: wait for the outcome, then judge again. Always the last
    verdict of a judgement: later messages must wait too, and a waiting flow holds no claim on them
    (otherwise two flows could wait for each other for ever)."""
    DEFERRED = 7
    """Copy of a deferred message, whose claim is kept meanwhile: defer this copy as well, and judge
    again later."""


class BarrierMisuse(Exception):
    """The caller broke the order of judge, commit, release: a bug."""


@dataclass(slots=True)
class Judgement:
    """Answer to one `judge`, with its claims, which may end one by one.

    There are as many verdicts as messages, or fewer if the last is CLAIMED.
    """

    claimant: object
    keys: list[bytes]
    contents: list[bytes]
    places: list[bytes]
    verdicts: list[Verdict]
    second_keys: dict[int, bytes]
    """Index -> key under which a CONFLICT is remembered."""
    twins: dict[int, int | None]
    """Index of a TWIN -> index of the message that it repeats, or None for an earlier
    judgement's."""
    blocked_on: bytes | None
    """Claimed key that ended the judgement, or None."""
    whole: bool
    """True if every verdict is NEW and no entry was committed or released alone."""
    repair_keys: dict[int, bytes] = field(default_factory=dict)
    """Index -> key under which the repair of the message is remembered."""
    is_kept: bool = False
    """True for the claim of one deferred message."""

    def __len__(self) -> int:
        return len(self.verdicts)


class Barrier:
    """Barrier of one site. `window_ms` is `outage_window` plus its margin; `meta_table` is any
    table of the store, for two small records.
    """

    def __init__(self, store: Store, window_ms: int, *, meta_table: str) -> None:
        self._memory = Generations(store, window_ms, meta_table=meta_table)
        self._claims: dict[bytes, Judgement] = {}
        self._waiting: dict[bytes, list[Callable[[], None]]] = {}
        self._owed: dict[bytes, bytes] = {}
        """First keys of conflicts whose own first message came to nothing, for the next commit."""

    def set_window(self, window_ms: int) -> None:
        """Change the window; see `Generations.set_window`."""
        self._memory.set_window(window_ms)

    @property
    def memory_ms(self) -> int:
        """Age up to which every delivery is remembered. Nobody can decide whether an older message
        is new.
        """
        return self._memory.memory_ms

    def rotate_if_due(self, now_ms: int) -> bool:
        """Age the memory, to be called about once a minute; see `Generations.rotate_if_due`."""
        return self._memory.rotate_if_due(now_ms)

    @property
    def claims(self) -> int:
        """Number of open claims."""
        return len(self._claims)

    # -- judge -------------------------------------------------------------------------------

    def judge(
        self,
        claimant: object,
        keys: list[bytes],
        contents: list[bytes],
        places: list[bytes],
    ) -> Judgement:
        """Return verdicts in the order of the messages, and claim the messages to be delivered.

        `keys` are barrier keys, `contents` at least 8 bytes of each content hash, `places` the
        place of each message (any bytes of one length, the same for the same place).
        """
        contents = [content[:CONTENT_KEPT] for content in contents]
        known = self._known(keys)
        judgement = Judgement(claimant, keys, contents, places, [], {}, {}, None, True)
        if (
            known is None
            and self._claims.keys().isdisjoint(keys)
            and len(distinct := dict.fromkeys(keys, judgement)) == len(keys)
        ):
            # The common case by far, in which nanoseconds count.
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
        """Judge messages that a repair sends again: DUPLICATE if a repair has brought them before.

        `unproven`: keys, from `remembered`, of remembered messages without a delivery in the site's
        ledger. These are NEW, other remembered messages are not. `delivered`: keys, from
        `not_remembered`, of messages with a delivery in the ledger.
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
        """Return index -> key of messages that are remembered and were brought by no repair. The
        site's ledger has to prove their delivery.
        """
        found = {}
        for index, (key, content) in enumerate(zip(keys, contents, strict=True)):
            key, kept = self._remembered_as(key, content[:CONTENT_KEPT])
            if kept is not None and self._recall(repair_key(key)) is None:
                found[index] = key
        return found

    def not_remembered(self, keys: list[bytes], contents: list[bytes]) -> dict[int, bytes]:
        """Return index -> key of messages that are not remembered: older than `memory_ms`, they may
        have been delivered and forgotten.
        """
        found = {}
        for index, (key, content) in enumerate(zip(keys, contents, strict=True)):
            key, kept = self._remembered_as(key, content[:CONTENT_KEPT])
            if kept is None and self._recall(repair_key(key)) is None:
                found[index] = key
        return found

    def delivered_from(self, key: bytes) -> bytes | None:
        """Return the place of the delivery remembered under `key`, or None."""
        kept = self._recall(key)
        return None if kept is None else kept[CONTENT_KEPT:]

    def _remembered_as(self, key: bytes, content: bytes) -> tuple[bytes, bytes | None]:
        """Return the message's key here (a conflict's second key), and the value under the key."""
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
        # Only repairs compete for a remembered message: the claim is on the repair's key.
        judgement.second_keys[index] = again
        self._claims[again] = judgement
        return Verdict.NEW

    def _known(self, keys: list[bytes]) -> list[bytes | None] | None:
        """Return the value under each key, or None if no key has one."""
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
            if holder.is_kept:
                return Verdict.DEFERRED
            if holder.claimant != judgement.claimant:
                # Whatever its content: only the holder's outcome decides whether this message is
                # new, a duplicate or a conflict.
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
        """Return the verdict for a key that is remembered or claimed with the same content."""
        if found is not None:
            again = found[CONTENT_KEPT:] == judgement.places[index]
            return Verdict.REPLAY if again else Verdict.DUPLICATE
        holder = self._claims[key]
        if holder.is_kept:
            return Verdict.DEFERRED
        if holder.claimant != judgement.claimant:
            judgement.blocked_on = key
            return Verdict.CLAIMED
        judgement.twins[index] = _index_of(judgement, key) if holder is judgement else None
        return Verdict.TWIN

    def when_released(self, judgement: Judgement, callback: Callable[[], None]) -> None:
        """Call back once the claim that ended `judgement` as CLAIMED has ended, either way; at once
        if it has already. Judge again from there.
        """
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
        """End the claims of entries begin..end, and remember the delivered ones in `changes`.

        `undelivered`: indices that came to nothing (dead letter, quarantine), which are released.
        Entries that `commit_early` or `release` ended are skipped. Write `changes` at once, in the
        same turn of the event loop: the claims are gone, and until the write nothing else knows
        these messages. Raises BarrierMisuse when a range is committed twice.
        """
        end = len(judgement) if end is None else end
        if judgement.whole and not undelivered and not self._waiting:
            # All entries at once.
            keys, contents, places = judgement.keys, judgement.contents, judgement.places
            if end - begin != len(keys):
                keys, contents, places = keys[begin:end], contents[begin:end], places[begin:end]
            ended = list(map(self._claims.pop, keys, repeat(None)))
            if ended.count(judgement) != len(ended):
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
        """Commit delivered entries behind an unsettled one: a flow that restarts before them finds
        them as REPLAY.
        """
        for index in indices:
            self._end_claim(judgement, index, changes, True)

    def release(self, judgement: Judgement, begin: int = 0, end: int | None = None) -> None:
        """End the open claims of entries begin..end, which were not delivered."""
        end = len(judgement) if end is None else end
        for index in range(begin, end):
            if self._holds(judgement, index):
                self._end_claim(judgement, index, None, False)

    def keep(self, judgement: Judgement, index: int) -> Judgement:
        """Keep the claim of an entry whose message is deferred, in a judgement of its own. Whoever
        waits for the claim is called back, to defer the copy as well. Raises BarrierMisuse.
        """
        key = judgement.second_keys.get(index, judgement.keys[index])
        kept = Judgement(
            judgement.claimant,
            [judgement.keys[index]],
            [judgement.contents[index]],
            [judgement.places[index]],
            [judgement.verdicts[index]],
            {0: key} if index in judgement.second_keys else {},
            {},
            None,
            False,
            is_kept=True,
        )
        if self._claims.get(key) is not judgement:
            raise BarrierMisuse("an entry without an open claim cannot be kept")
        judgement.whole = False
        self._claims[key] = kept
        for callback in self._waiting.pop(key, ()):
            callback()
        return kept

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
                # The message in conflict is not delivered (yet). Until then this content must stop
                # its own further copies; a later delivery of the other writes over the entry.
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
