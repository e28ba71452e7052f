"""Settings of a link, and the trade-off of each. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Settings whose defaults suit a WAN: 8 MiB keep 300 Mbit/s busy over 200 ms."""

    window_bytes: int = 8 * MIB
    """Bytes under way unacknowledged: a line's rate times its round trip. More is memory at both
    ends and at the meeting broker, and time lost to bytes of a session that has ended."""

    time_out_s: float = 5.0
    """Least time without progress after which a session is given up. Less ends sessions that were
    only slow; more leaves a link standing longer after an unnoticed loss."""
    silence_s: float = 20.0
    """Time without a frame from the receiver (one every `pulse_s`) until it counts as gone."""
    pulse_s: float = 5.0
    """Interval at which both ends send when there is nothing to report."""

    ask_first_s: float = 0.5
    ask_most_s: float = 30.0
    """Backoff between asks, and between attempts to connect: doubled each time, with jitter."""

    ack_batches: int = 64
    ack_bytes: int = 1 * MIB
    ack_delay_s: float = 0.1
    """Delay of an ack. An ack goes at once after a pause of `ack_delay_s`, else after so many
    batches, bytes or seconds: each ack costs the meeting broker as much as a batch."""

    lookback_s: float = 600.0
    """Time before the last ack whose batches are offered again to a receiver with a new run, which
    may have lost its log's unsynced tail. Must exceed what a broker holds unsynced."""
    sample_s: float = 60.0
    """Resolution of the history of positions that `lookback_s` is looked up in."""
    save_s: float = 1.0
    """Least time between two saves of the position. Older positions cost resends, never loss."""
    unsure_s: float = 300.0
    """Time until a batch is sent again whose origin the receiver's mesh file does not know."""
    unsure_most_s: float = 6 * 3600.0
    """Time until a batch is refused for which no mesh file has come. Less quarantines batches that
    a slow mesh file would have allowed; more keeps a link waiting for batches that none will allow.
    """
    refused_batches: int = 1000
    refused_bytes: int = 64 * MIB
    refused_within_s: float = 86_400.0
    """Period in which a neighbour may put so much into the quarantine; more is only counted."""
    fruitful_s: float = 30.0
    """Age at which a session is no setback even if nothing was there to send."""
    hold_s: float = 1.0
    """Least time for which a batch waits that the receiver may get by its mesh's group."""
    bad_copies: int = 3
    """Sessions in which a batch that is intact here and damaged at the receiver is tried."""
