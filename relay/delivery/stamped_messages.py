"""Messages on their way to the local broker that the native core has stamped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from relay.delivery.local_exchange import Outgoing


class StampedMessages(Sequence[Outgoing]):
    """Runs of stamped messages (`isthmus_core.StampedRun`) in a row, each of which becomes an
    object only when asked for.
    """

    def __init__(self, runs: Sequence[Any]) -> None:
        self._runs = runs

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @overload
    def __getitem__(self, index: int) -> Outgoing: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Outgoing]: ...
    def __getitem__(self, index: int | slice) -> Outgoing | Sequence[Outgoing]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        left = index if index >= 0 else index + len(self)
        for run in self._runs:
            if 0 <= left < len(run):
                return Outgoing(*run[left])
            left -= len(run)
        raise IndexError(index)

    def frames(self, exchange: str, channel: int, largest: int) -> list[bytes] | None:
        """Return the frames that publish all messages to the exchange, mandatory; None if AMQP
        cannot carry a message. `largest` is the largest payload of a frame in bytes.
        """
        name = exchange.encode("utf-8", "surrogateescape")
        made: list[bytes] = []
        for run in self._runs:
            frames = run.frames(name, channel, largest, True)
            if frames is None:
                return None
            made.append(frames)
        return made
