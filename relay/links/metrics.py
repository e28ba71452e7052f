"""Counters and lag of a link, read by status and metrics."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from relay.delay_histogram import DelayHistogram

_MOST_SAMPLES = 2048
_EVERY_S = 1.0


class LinkState(StrEnum):
    STARTING = "starting"
    """No session yet, and nothing known to be wrong."""
    RUNNING = "running"
    DOWN = "down"


@dataclass(slots=True)
class SenderCounters:
    """Counters of a link's sender since the process started. Bytes are of batches as sent."""

    sessions: int = 0
    fruitless_sessions: int = 0
    sent: int = 0
    sent_bytes: int = 0
    resent: int = 0
    """Batches sent again by a later session of the same process."""
    acked: int = 0
    acked_messages: int = 0
    acked_bytes: int = 0
    refused: int = 0
    """Batches that the receiver will never take. Each is an error to look into."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Batches not sent, by reason."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Frames not obeyed, by reason."""
    returned: int = 0
    """Frames that came back because there was no receiver."""
    ends: Counter[str] = field(default_factory=Counter)
    """Ended sessions by reason."""
    round_trip_s: float = 0.0
    clock_ahead_ms: int = 0
    """Receiver's clock minus ours."""
    ack_delays: DelayHistogram = field(default_factory=DelayHistogram)
    """Delays of batches from their send in a session to their acknowledgement."""

    def note_ack(self, batches: int, messages: int, nbytes: int, delay_s: float) -> None:
        """Count batches acknowledged together, the oldest sent `delay_s` ago."""
        self.acked += batches
        self.acked_messages += messages
        self.acked_bytes += nbytes
        self.ack_delays.observe(delay_s, batches)


@dataclass(slots=True)
class ReceiverCounters:
    """Counters of a link's receiver since the process started."""

    sessions: int = 0
    arrived: int = 0
    arrived_messages: int = 0
    arrived_bytes: int = 0
    logged: int = 0
    known: int = 0
    """Batches that the log had already, by a faster path or an earlier send."""
    refused: int = 0
    refused_unkept: int = 0
    """Refused batches not put aside: the quarantine has enough of that neighbour for the day."""
    not_authentic: int = 0
    """Refused batches that were not of the origin they claimed."""
    acks: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Frames not obeyed, by reason."""
    ends: Counter[str] = field(default_factory=Counter)
    clock_ahead_ms: int = 0
    """Our clock minus the sender's, as the sender measured."""

    def note_arrival(self, messages: int, nbytes: int) -> None:
        """Count a batch that has arrived and is taken."""
        self.arrived += 1
        self.arrived_messages += messages
        self.arrived_bytes += nbytes

    def appended(self, *, known: bool) -> None:
        """Count a batch that the log has; `known`: the log had the batch before."""
        if known:
            self.known += 1
        else:
            self.logged += 1


@dataclass(frozen=True, slots=True)
class Lag:
    """Messages, bytes (both before compression) and seconds that a link's receiver is behind."""

    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


class AppendTimes:
    """Times at which the log's count of appended messages passed given numbers, for a lag in
    seconds. Each node has one.

    Headers have the origin's clock, which may be off; a link is to blame only for the time since
    its own log got the batch.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._counts: list[int] = []
        self._began: float | None = None

    def note(self, appended_messages: int, now: float) -> None:
        """Record the count of messages appended since the start; call once a second."""
        times, counts = self._times, self._counts
        if self._began is None:
            self._began = now
        if times and appended_messages == counts[-1]:
            times[-1] = now
            return
        if times and now < times[-1] + _EVERY_S / 2:
            return
        times.append(now)
        counts.append(appended_messages)
        if len(times) > _MOST_SAMPLES:
            self._thin_out(now)

    def _thin_out(self, now: float) -> None:
        """Thin out old samples until they lie a sixteenth of their age apart."""
        times, counts = self._times[:1], self._counts[:1]
        for number in range(1, len(self._times) - 1):
            following = self._times[number + 1]
            if following - times[-1] > (now - following) / 16:
                times.append(self._times[number])
                counts.append(self._counts[number])
        self._times = [*times, self._times[-1]]
        self._counts = [*counts, self._counts[-1]]

    def age(self, appended_messages: int, lag_messages: int, now: float) -> float:
        """Return the seconds since the append of the oldest of the last `lag_messages`, at most
        since the start; 0 without lag.
        """
        if lag_messages <= 0 or self._began is None:
            return 0.0
        at = bisect_right(self._counts, appended_messages - lag_messages) - 1
        return max(0.0, now - (self._times[at] if at >= 0 else self._began))
