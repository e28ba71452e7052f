"""What a connection writes, in pieces, each when it is granted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol


class Pace(Protocol):
    """Who says how much may be written, and when."""

    @property
    def holds_back(self) -> bool:
        """Whether it is this that something waits for."""
        ...

    def open(self, grant: Callable[[int], None]) -> None:
        """A connection begins; call `grant` with how many bytes it may write."""
        ...

    def put(self, nbytes: int) -> None:
        """So many more are to be written. May grant them from within."""
        ...

    def hold(self) -> None:
        """The socket takes no more at present."""
        ...

    def go_on(self) -> None:
        """It does again."""
        ...

    def close(self) -> None:
        """The connection is gone, with what it had to write."""
        ...


class PacedWriter:
    """Of one connection. Bytes keep their order; a piece may end anywhere in a frame."""

    def __init__(self, pace: Pace, write: Callable[[Sequence[bytes | memoryview]], None]) -> None:
        self.waiting = 0
        """Bytes that are not written yet."""
        self.pace = pace
        self._write = write
        self._pieces: deque[bytes | memoryview] = deque()
        pace.open(self._granted)

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """When it is granted."""
        size = sum(map(len, pieces))
        self._pieces.extend(pieces)
        self.waiting += size
        self.pace.put(size)

    def drop(self) -> None:
        """The connection is gone; idempotent."""
        self._pieces.clear()
        self.waiting = 0
        self.pace.close()

    def _granted(self, nbytes: int) -> None:
        pieces = self._pieces
        self.waiting -= nbytes
        out: list[bytes | memoryview] = []
        while nbytes > 0:
            piece = pieces.popleft()
            if len(piece) > nbytes:
                whole = memoryview(piece)
                pieces.appendleft(whole[nbytes:])
                piece = whole[:nbytes]
            nbytes -= len(piece)
            out.append(piece)
        self._write(out)
