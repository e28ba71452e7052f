"""Memory of the barrier in two generations: deliveries of one to two windows.

Each generation is a table: new keys go into the young one, lookups ask both, and once the young one
is older than the window the old one is emptied (O(1), whatever its size) and becomes the young one.
A generation ages by time that passed while the node watched, so that a wrong clock never empties
one early.
"""

from __future__ import annotations

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
        kept = store.get(meta_table, _GENERATION_KEY)
        self._young: int = 0
        self._age_ms: int = 0
        self._seen_ms: int | None = None
        if kept is not None:
            self._young, self._age_ms, self._seen_ms = _GENERATION.unpack(kept)
        self._old_is_empty = self._is_empty(self._old_table)
        remembered = store.get(meta_table, _MEMORY_KEY)
        # Without a record the window has never changed.
        self._memory_ms = window_ms if remembered is None else int.from_bytes(remembered)
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
