"""Writer of a connection's bytes in pieces, as its pace grants them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol


class Pace(Protocol):
    """Pace of writing: grants bytes when they may go."""

    @property
    def holds_back(self) -> bool:
        """True if the pace, and nothing else, keeps bytes waiting."""
        ...

    def open(self, grant: Callable[[int], None]) -> None:
        """Begin a connection; call `grant` with the number of bytes that it may write."""
        ...

    def put(self, nbytes: int) -> None:
        """Note further bytes to be written. May grant them from within."""
        ...

    def hold(self) -> None:
        """Pause granting: the socket takes no more at present."""
        ...

    def go_on(self) -> None:
        """Resume granting."""
        ...

    def close(self) -> None:
        """End the connection, with the bytes that wait."""
        ...


class PacedWriter:
    """Paced writer of a connection. Bytes keep their order; a piece may end anywhere in a frame."""

    def __init__(self, pace: Pace, write: Callable[[Sequence[bytes | memoryview]], None]) -> None:
        self.waiting = 0
        """Bytes that are not written yet."""
        self.pace = pace
        self._write = write
        self._pieces: deque[bytes | memoryview] = deque()
        pace.open(self._granted)

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write the pieces as they are granted."""
        size = sum(map(len, pieces))
        self._pieces.extend(pieces)
        self.waiting += size
        self.pace.put(size)

    def drop(self) -> None:
        """Drop all waiting bytes, the connection being gone; idempotent."""
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
