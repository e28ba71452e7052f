"""Pure: what one connection has under way in one direction, by the time it arrives."""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class DelayQueue(Generic[Item]):
    """Arrivals in the order of departures: nothing overtakes, whatever the jitter, and what is
    late holds up what is behind it. Times are seconds of any one clock."""

    __slots__ = ("_bytes", "_last_arrival", "_under_way")

    def __init__(self) -> None:
        self._under_way: deque[tuple[float, Item, int]] = deque()
        self._bytes = 0
        self._last_arrival = float("-inf")

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def bytes_under_way(self) -> int:
        return self._bytes

    def push(self, item: Item, size: int, arrives: float) -> None:
        """Adds an item that arrives then, or with the one before it if that arrives later."""
        self._last_arrival = max(self._last_arrival, arrives)
        self._under_way.append((self._last_arrival, item, size))
        self._bytes += size

    def next_arrival(self) -> float | None:
        """When to call `pop_due` next; None while empty."""
        return self._under_way[0][0] if self._under_way else None

    def pop_due(self, now: float) -> Item | None:
        """The next item, if it has arrived by now."""
        if not self._under_way or self._under_way[0][0] > now:
            return None
        _, item, size = self._under_way.popleft()
        self._bytes -= size
        return item

    def clear(self) -> int:
        """Drops everything; returns the bytes dropped."""
        dropped = self._bytes
        self._under_way.clear()
        self._bytes = 0
        return dropped
