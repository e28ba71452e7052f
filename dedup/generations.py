"""The barrier's memory, two generations: what was delivered, for one to two windows.

They are tables of their own: new keys go into the young one, both are asked, and when the young one
is older than the window the old one is emptied (O(1), whatever its size) and becomes the young one.
What ages a generation is time that passed while the node watched: a clock set wrong never empties
one early.
"""

from __future__ import annotations

from struct import Struct

from dedup.store import Changes, Store

GENERATIONS = ("barrier.a", "barrier.b")
"""The barrier's tables; read by single keys."""
MAX_AGEING_MS = 3_600_000
"""How much one look at the clock can age a generation; `rotate_if_due` is called far more often."""

_GENERATION_KEY = b"barrier.generation"
_MEMORY_KEY = b"barrier.memory"
_GENERATION = Struct(">BQQ")
"""Which table is young, its age in ms, when the clock was last looked at (ms since 1970)."""


def is_beyond_window(
    published_ms: int, now_ms: int, window_ms: int, clock_difference_ms: int = 0
) -> bool:
    """Whether a message is older than the barrier's memory, so that nobody can say if it is new.

    `clock_difference_ms` is the origin's clock minus ours, as the links measure it. One from the
    future is not beyond: a clock that is merely off is warned of, not obeyed.
    """
    return now_ms - (published_ms - clock_difference_ms) > window_ms


class Generations:
    """The memory of one site's barrier. `window_ms` is how long each key is remembered at least;
    `meta_table` is any table of the store, for two small records."""

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
    def young_table(self) -> str:
        """Where a commit writes what it delivered."""
        return GENERATIONS[self._young]

    @property
    def _old_table(self) -> str:
        return GENERATIONS[1 - self._young]

    def known(self, keys: list[bytes]) -> list[bytes | None]:
        """What is remembered under each key."""
        young = self._store.get_many(self.young_table, keys)
        if self._old_is_empty:
            return young
        old = self._store.get_many(self._old_table, keys)
        return [a if a is not None else b for a, b in zip(young, old, strict=True)]

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
