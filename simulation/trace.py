"""Events of a simulation in order, and their digest: one seed, one digest."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from hashlib import blake2b

MOST_LINES = 100_000
"""Number of lines kept for readers; the digest covers all lines."""


class Trace:
    """Recorder of events, in the loop's time."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Number of events by kind."""
        self._digest = blake2b(digest_size=16)
        self._final_digest = ""
        self._lines: deque[str] = deque(maxlen=MOST_LINES)

    def add(self, kind: str, where: str, what: str = "") -> None:
        """Record an event of this kind at a place, now."""
        self.counts[kind] += 1
        line = f"{asyncio.get_running_loop().time():.6f} {kind} {where} {what}".rstrip()
        self._digest.update(line.encode() + b"\n")
        self._lines.append(line)

    def __getstate__(self) -> tuple[Counter[str], str]:
        """Return the counts and the digest for another process: no lines, and no more events."""
        return self.counts, self.digest

    def __setstate__(self, state: tuple[Counter[str], str]) -> None:
        self.counts, self._final_digest = state
        self._lines = deque()

    @property
    def digest(self) -> str:
        return self._final_digest or self._digest.hexdigest()

    def lines(self) -> Iterator[str]:
        """Yield the last lines in order."""
        yield from self._lines
