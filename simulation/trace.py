"""What happened in a simulation, in order, and a digest of it: one seed, one digest."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from hashlib import blake2b

MOST_LINES = 100_000
"""Kept for whoever wants to read them; the digest is of all."""


class Trace:
    """`say` what happens; times are the loop's."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Events by kind."""
        self._digest = blake2b(digest_size=16)
        self._told = ""
        self._lines: deque[str] = deque(maxlen=MOST_LINES)

    def add(self, kind: str, where: str, what: str = "") -> None:
        """Something of this kind happened there, now."""
        self.counts[kind] += 1
        line = f"{asyncio.get_running_loop().time():.6f} {kind} {where} {what}".rstrip()
        self._digest.update(line.encode() + b"\n")
        self._lines.append(line)

    def __getstate__(self) -> tuple[Counter[str], str]:
        """What another process gets of it: no lines, and nothing is said any more."""
        return self.counts, self.digest

    def __setstate__(self, state: tuple[Counter[str], str]) -> None:
        self.counts, self._told = state
        self._lines = deque()

    @property
    def digest(self) -> str:
        return self._told or self._digest.hexdigest()

    def lines(self) -> Iterator[str]:
        """The last ones, in order."""
        yield from self._lines
