"""Memory of the barrier in two generations: deliveries of one to two windows.

Each generation is a table: new keys go into the young one, lookups ask both, and once the young one
is older than the window the old one is emptied (O(1), whatever its size) and becomes the young one.
A generation ages by time that passed while the node watched, so that a wrong clock never empties
one early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from dedup.store import Changes, Store

GENERATIONS = ("barrier.a", "barrier.b")
"""Tables of the barrier, read by single keys."""
MAX_AGEING_MS = 3_600_000
"""Most ageing by one look at the clock; `rotate_if_due` is called far more often."""

_GENERATION_KEY = b"barrier.generation"
_MEMORY_KEY = b"barrier.memory"
_GENERATION = Struct(">BQQ")
"""Record: index of the young table, its age in ms, last look at the clock (ms since 1970)."""


@dataclass(frozen=True, slots=True)
class GenerationAge:
    """Age of a memory's generations. Times in ms."""

    young: int = 0
    """Index of the young table."""
    age_ms: int = 0
    seen_ms: int | None = None
    """Last look at the clock; None before the first."""
    memory_ms: int | None = None
    """Age up to which every delivery is remembered; None: the window."""

    @classmethod
    def of(cls, store: Store, meta_table: str) -> GenerationAge:
        """Read the age of the memory in a store."""
        kept = store.get(meta_table, _GENERATION_KEY)
        remembered = store.get(meta_table, _MEMORY_KEY)
        memory_ms = None if remembered is None else int.from_bytes(remembered)
        if kept is None:
            return cls(memory_ms=memory_ms)
        young, age_ms, seen_ms = _GENERATION.unpack(kept)
        return cls(young, age_ms, seen_ms, memory_ms)

    @classmethod
    def youngest(cls, ages: Sequence[GenerationAge]) -> GenerationAge:
        """Return the age of a memory with the keys of all these memories, generation by generation,
        by which none of them is forgotten too early. The young table is the first.
        """
        seen = [one.seen_ms for one in ages if one.seen_ms is not None]
        memories = [one.memory_ms for one in ages if one.memory_ms is not None]
        return cls(
            0,
            min(one.age_ms for one in ages),
            max(seen, default=None),
            min(memories, default=None),
        )

    @property
    def young_table(self) -> str:
        """Table of the young generation."""
        return GENERATIONS[self.young]

    def put(self, changes: Changes, meta_table: str) -> None:
        """Write the age into a store's changes."""
        if self.seen_ms is not None:
            value = _GENERATION.pack(self.young, self.age_ms, self.seen_ms)
            changes.put(meta_table, _GENERATION_KEY, value)
        if self.memory_ms is not None:
            changes.put(meta_table, _MEMORY_KEY, self.memory_ms.to_bytes(8))


def is_beyond_window(
    published_ms: int, now_ms: int, window_ms: int, clock_difference_ms: int = 0
) -> bool:
    """True if a message is older than the barrier's memory, so that nobody can decide if it is new.

    `clock_difference_ms` is the origin's clock minus ours, as the links measure it. A message from
    the future is not beyond: a clock that is merely off causes a warning only.
    """
    return now_ms - (published_ms - clock_difference_ms) > window_ms


class Generations:
    """Memory of one site's barrier. `window_ms`: least time for which a key is remembered;
    `meta_table`: any table of the store, for two small records.
    """

    def __init__(self, store: Store, window_ms: int, *, meta_table: str) -> None:
        self._store = store
        self._meta_table = meta_table
        kept = GenerationAge.of(store, meta_table)
        self._young, self._age_ms, self._seen_ms = kept.young, kept.age_ms, kept.seen_ms
        self._old_is_empty = self._is_empty(self._old_table)
        # Without a record the window has never changed.
        self._memory_ms = window_ms if kept.memory_ms is None else kept.memory_ms
        self.set_window(window_ms)

    def set_window(self, window_ms: int) -> None:
        """Change the window. A longer window fills only with time: forgotten deliveries stay
        forgotten, see `memory_ms`.
        """
        self._window_ms = window_ms
        self._memory_ms = min(self._memory_ms, window_ms)

    @property
    def memory_ms(self) -> int:
        """Age up to which every delivery is remembered: the window, or less for a while after it
        has grown. Nobody can decide whether an older message is new.
        """
        return self._memory_ms

    @property
    def young_table(self) -> str:
        """Table to which a commit writes."""
        return GENERATIONS[self._young]

    @property
    def _old_table(self) -> str:
        return GENERATIONS[1 - self._young]

    def known(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the value under each key, or None."""
        young = self._store.get_many(self.young_table, keys)
        if self._old_is_empty:
            return young
        old = self._store.get_many(self._old_table, keys)
        return [a if a is not None else b for a, b in zip(young, old, strict=True)]

    def rotate_if_due(self, now_ms: int) -> bool:
        """Forget the old generation, and return True, if the young one covers the whole window.

        To be called about once a minute. A node that was down, or whose clock jumped, ages its
        generation by MAX_AGEING_MS at most: too long a memory costs disk, too short a memory would
        repeat messages.
        """
        passed_ms = 0 if self._seen_ms is None else now_ms - self._seen_ms
        passed_ms = min(max(passed_ms, 0), MAX_AGEING_MS)
        self._age_ms += passed_ms
        self._memory_ms = min(self._memory_ms + passed_ms, self._window_ms)
        self._seen_ms = now_ms
        due = self._age_ms > self._window_ms
        if due:
            # Empty first, then name it young: after a kill in between, it is emptied again.
            self._store.clear_table(self._old_table)
            self._young, self._age_ms = 1 - self._young, 0
        changes = Changes()
        age = GenerationAge(self._young, self._age_ms, now_ms, self._memory_ms)
        age.put(changes, self._meta_table)
        self._store.write(changes)
        if due:
            self._old_is_empty = self._is_empty(self._old_table)
        return due

    def _is_empty(self, table: str) -> bool:
        for _ in self._store.scan(table):
            return False
        return True
