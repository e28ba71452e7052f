"""What may be set of a link, and what each setting trades. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The defaults are for a WAN: 8 MiB keep 300 Mbit/s busy over 200 ms."""

    window_bytes: int = 8 * MIB
    """What may be under way unacknowledged: a line's rate times its round trip. More is memory
    at both ends and at the meeting broker, and time lost to bytes of a session that has ended."""

    time_out_s: float = 5.0
    """Least time without progress after which a session is given up. Less ends sessions that
    were only slow; more leaves a link standing longer after a loss that nobody told of."""
    silence_s: float = 20.0
    """Time without any word from the receiver (it speaks every `pulse_s`) until it is gone."""
    pulse_s: float = 5.0
    """How often both ends speak when there is nothing to say."""

    ask_first_s: float = 0.5
    ask_most_s: float = 30.0
    """Backoff between asks, and between attempts to connect: doubled each time, with jitter."""

    ack_batches: int = 64
    ack_bytes: int = 1 * MIB
    ack_delay_s: float = 0.1
    """An ack goes at once after a pause of `ack_delay_s`, else after so many batches, bytes or
    seconds: each costs the meeting broker as much as a batch."""

    lookback_s: float = 600.0
    """A receiver with a new run may have lost its log's unsynced tail: what was acknowledged in
    this time before its last ack is offered again. Must exceed what a broker holds unsynced."""
    sample_s: float = 60.0
    """How fine the history of positions is that `lookback_s` is looked up in."""
    save_s: float = 1.0
    """Least time between two writes of the position. Older positions cost resends, never loss."""
    unsure_s: float = 300.0
    """Until a batch is sent again of which the receiver's mesh file cannot say whose it is."""
    unsure_most_s: float = 6 * 3600.0
    """Until what no mesh file has come for is refused. Less quarantines what a file that is slow to
    come would have allowed; more has a link stand for what none will ever allow."""
    refused_batches: int = 1000
    refused_bytes: int = 64 * MIB
    refused_within_s: float = 86_400.0
    """What a neighbour may have put into the quarantine in that time; more is only counted."""
    bad_copies: int = 3
    """A batch that is intact here and damaged at the receiver in so many sessions is given up."""
