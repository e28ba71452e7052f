"""Pure: the queue of the router in front of a line's rate cap, shared by all its connections."""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

BURST_BYTES = 3000
"""Two full frames: less would make the cap finer than timers are."""

Owner = TypeVar("Owner")
Item = TypeVar("Item")


class TokenBucket:
    """Passes `rate_bits_per_s`, and up to `burst_bytes` at once after a rest.

    Kept as the moment at which what was reserved is through: what is reserved later begins there,
    so a timer that fires late costs no capacity. `rate_bits_per_s=None` passes all at once.
    Times are seconds of any one clock.
    """

    __slots__ = ("_burst_bits", "_clear_at", "_rate")

    def __init__(self, rate_bits_per_s: float | None, burst_bytes: int, now: float) -> None:
        self._rate = rate_bits_per_s
        self._burst_bits = burst_bytes * 8
        self._clear_at = now - self._burst_seconds()

    def reserve(self, size_bytes: int, now: float) -> float:
        """The moment at which `size_bytes` more are through, if they stand ready at `now`."""
        if self._rate is None:
            self._clear_at = now
        else:
            start = max(self._clear_at, now - self._burst_seconds())
            self._clear_at = start + size_bytes * 8 / self._rate
        return max(self._clear_at, now)

    def change_rate(self, rate_bits_per_s: float | None, now: float) -> float:
        """From now on this rate; what was reserved and is not through yet counts at the new one.

        Returns the moment at which all of it is through.
        """
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
    """What has passed the cap: whose, what, and when it was through."""

    owner: Owner
    item: Item
    at: float


class _Waiting(NamedTuple, Generic[Owner, Item]):
    owner: Owner
    item: Item
    size: int
    arrived: float


class RouterQueue(Generic[Owner, Item]):
    """First in, first out at a rate. Only the head has its departure reserved, so a changed rate
    holds for everything behind it, and for what is left of the head."""

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
        """Whether sources should stop. It is for them to obey: nothing is dropped here."""
        return self._bytes >= self._limit

    def push(self, owner: Owner, item: Item, size: int, now: float) -> None:
        """Adds an item; one of size 0 (an end of stream) takes no time but keeps its place."""
        self._waiting.append(_Waiting(owner, item, size, now))
        self._bytes += size
        if self._head_departs is None:
            self._head_departs = self._bucket.reserve(size, now)

    def next_departure(self) -> float | None:
        """When to call `pop_due` next; None while empty."""
        return self._head_departs

    def pop_due(self, now: float) -> list[Departure[Owner, Item]]:
        """Everything that is through by now, in order."""
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
        """Another rate and limit, for what waits too."""
        self._limit = limit_bytes
        through = self._bucket.change_rate(rate_bits_per_s, now)
        if self._head_departs is not None:
            self._head_departs = through

    def restart(self, now: float) -> None:
        """After a cut: the head goes now, and the time of the cut was no time to send in."""
        if self._head_departs is not None:
            self._head_departs = max(self._head_departs, now)

    def remove(self, owner: Owner) -> int:
        """Drops what a dead connection has here; returns the bytes dropped."""
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
            # The dropped head's time on the line is spent, as that of a real segment would be.
            self._head_departs = self._bucket.reserve(kept[0].size, self._head_departs)
        return dropped
