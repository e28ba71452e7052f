"""Settings of a group, and the trade-off of each. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings whose defaults suit a network with round trips of up to some 100 ms."""

    rate: float
    """Bytes a second that the site may send into the group."""
    piece_bytes: int = 1300
    """Most bytes of a frame in one datagram: what the network's MTU leaves."""
    nack_wait_s: float = 0.01
    """Most time before a NACK, drawn at random: who hears another's meanwhile sends none. Half a
    round trip keeps most quiet; more delays what was lost. A fifth of it is waited for in any case:
    pieces overtake each other.
    """
    gather_s: float = 0.005
    """Time for which NACKs of one frame are gathered before they are answered, all at once."""
    rank_wait_s: float = 0.03
    """Time by which a site of the next rank answers later, if it has not heard an answer, nor that
    the other lacks the frame as well.
    """
    unanswered: int = 4
    """NACKs for a frame without a piece of it, after which the links have to bring the frame."""
    held_bytes: int = 8 * MIB
    held_frames: int = 1024
    """Limit of what is held of one publisher, whose frames came before one that is missing."""
    held_in_all: int = 32 * MIB
    catch_up_frames: int = 32
    """Most frames that are asked for to follow a stream that was lost; more have to come by links.
    """
    sent_bytes: int = 16 * MIB
    """Bytes of frames kept to answer NACKs."""
    waiting_s: float = 0.5
    waiting_bytes: int = 8 * MIB
    """Limits of what waits for the rate: links bring the rest soon, and newer batches matter more.
    """
    pulse_first_s: float = 0.02
    pulse_growth: float = 3.0
    pulse_most_s: float = 5.0
    """Time to the pulse behind a frame, which tells of its last pieces; and between pulses at rest,
    so many times as long each time.
    """
    pulse_busy_s: float = 0.25
    """Time between pulses while frames are sent: by these a site finds its way into a stream."""
