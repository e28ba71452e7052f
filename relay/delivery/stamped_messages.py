"""Messages on their way to the local broker that the native core has stamped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from relay.bulk_amqp import Message
from relay.delivery.local_exchange import Outgoing

T = TypeVar("T")


class _MadeOnDemand(Sequence[T]):
    """Sequence whose items become objects only when asked for."""

    @abstractmethod
    def _make(self, index: int) -> T:
        """Make the item with this number, 0 or more. Raises IndexError."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._make(number) for number in range(*index.indices(len(self)))]
        return self._make(index if index >= 0 else index + len(self))


class StampedMessages(_MadeOnDemand[Outgoing]):
    """Runs of stamped messages (`isthmus_core.StampedRun`) in a row."""

    def __init__(self, runs: Sequence[Any]) -> None:
        self._runs = runs

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def _make(self, index: int) -> Outgoing:
        left = index
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


class AddressedMessages(_MadeOnDemand[Message]):
    """Stamped messages as a channel publishes them: with the exchange."""

    def __init__(self, exchange: str, messages: StampedMessages) -> None:
        self._exchange = exchange
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def _make(self, index: int) -> Message:
        return (self._exchange, *self._messages[index])
