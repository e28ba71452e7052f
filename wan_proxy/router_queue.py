"""Pure: router's queue in front of a line's rate cap, shared by all its connections."""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

BURST_BYTES = 3000
"""Two full frames: a smaller burst would make the cap finer than timers are."""

Owner = TypeVar("Owner")
Item = TypeVar("Item")


class TokenBucket:
    """Rate limit of `rate_bits_per_s`, with up to `burst_bytes` at once after a rest.

    The state is the moment at which all reserved bytes are through; the next reservation begins
    there, so a late timer costs no capacity. `rate_bits_per_s=None` passes all at once. Times are
    seconds of any one clock.
    """

    __slots__ = ("_burst_bits", "_clear_at", "_rate")

    def __init__(self, rate_bits_per_s: float | None, burst_bytes: int, now: float) -> None:
        self._rate = rate_bits_per_s
        self._burst_bits = burst_bytes * 8
        self._clear_at = now - self._burst_seconds()

    def reserve(self, size_bytes: int, now: float) -> float:
        """Return the moment at which `size_bytes` more are through, if ready at `now`."""
        if self._rate is None:
            self._clear_at = now
        else:
            start = max(self._clear_at, now - self._burst_seconds())
            self._clear_at = start + size_bytes * 8 / self._rate
        return max(self._clear_at, now)

    def change_rate(self, rate_bits_per_s: float | None, now: float) -> float:
        """Change the rate, for reserved bytes too; return the moment at which these are through."""
        if self._rate is None or rate_bits_per_s is None:
            self._rate = rate_bits_per_s
            self._clear_at = now
            return now
        outstanding_bits = (self._clear_at - now) * self._rate
        self._rate = rate_bits_per_s
        self._clear_at = now + outstanding_bits / rate_bits_per_s
        return max(self._clear_at, now)

    def _burst_seconds(self) -> float:
        return 0.0 if self._rate is None else self._burst_bits / self._rate


class Departure(NamedTuple, Generic[Owner, Item]):
    """Item that has passed the cap: its owner, and the moment at which the item was through."""

    owner: Owner
    item: Item
    at: float


class _Waiting(NamedTuple, Generic[Owner, Item]):
    owner: Owner
    item: Item
    size: int
    arrived: float


class RouterQueue(Generic[Owner, Item]):
    """First in, first out at a rate.

    Only the head has its departure reserved, so a changed rate holds for everything behind the
    head, and for the rest of the head.
    """

    def __init__(self, rate_bits_per_s: float | None, limit_bytes: int, now: float) -> None:
        self._bucket = TokenBucket(rate_bits_per_s, BURST_BYTES, now)
        self._limit = limit_bytes
        self._waiting: deque[_Waiting[Owner, Item]] = deque()
        self._bytes = 0
        self._head_departs: float | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def bytes_waiting(self) -> int:
        return self._bytes

    @property
    def is_full(self) -> bool:
        """True if sources should stop reading; the queue itself drops nothing."""
        return self._bytes >= self._limit

    def push(self, owner: Owner, item: Item, size: int, now: float) -> None:
        """Add an item; an end of stream, of size 0, takes no time but keeps its place."""
        self._waiting.append(_Waiting(owner, item, size, now))
        self._bytes += size
        if self._head_departs is None:
            self._head_departs = self._bucket.reserve(size, now)

    def next_departure(self) -> float | None:
        """Return the time of the next `pop_due`, or None while empty."""
        return self._head_departs

    def pop_due(self, now: float) -> list[Departure[Owner, Item]]:
        """Remove and return the items that are through by now, in order."""
        departures: list[Departure[Owner, Item]] = []
        while self._head_departs is not None and self._head_departs <= now:
            departed = self._head_departs
            owner, item, size, _ = self._waiting.popleft()
            self._bytes -= size
            departures.append(Departure(owner, item, departed))
            self._head_departs = None
            if self._waiting:
                following = self._waiting[0]
                self._head_departs = self._bucket.reserve(
                    following.size, max(departed, following.arrived)
                )
        return departures

    def change(self, rate_bits_per_s: float | None, limit_bytes: int, now: float) -> None:
        """Change the rate and limit, for waiting items too."""
        self._limit = limit_bytes
        through = self._bucket.change_rate(rate_bits_per_s, now)
        if self._head_departs is not None:
            self._head_departs = through

    def restart(self, now: float) -> None:
        """Resume after a cut: the head leaves at once; the time of the cut earns no capacity."""
        if self._head_departs is not None:
            self._head_departs = max(self._head_departs, now)

    def remove(self, owner: Owner) -> int:
        """Drop the items of a dead connection; return the bytes dropped."""
        head = self._waiting[0] if self._waiting else None
        kept = [waiting for waiting in self._waiting if waiting.owner is not owner]
        dropped = sum(waiting.size for waiting in self._waiting) - sum(w.size for w in kept)
        if len(kept) == len(self._waiting):
            return 0
        self._waiting = deque(kept)
        self._bytes -= dropped
        if not kept:
            self._head_departs = None
        elif kept[0] is not head and self._head_departs is not None:
            # The dropped head's time on the line is spent, as a real segment's would be.
            self._head_departs = self._bucket.reserve(kept[0].size, self._head_departs)
        return dropped
