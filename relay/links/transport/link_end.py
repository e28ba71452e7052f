"""The seam between a link's two machines and what carries their frames.

A transport carries whole frames (bytes) with what the carrier vouches for. It may lose, repeat
or forget, and says so only sometimes. Twins: `rabbit_transport` (exchanges on the meeting
broker), `memory_transport` (virtual time); one contract suite over both. One `LinkEnd` is one
connection; once closed, for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from relay.bulk_amqp.paced_writer import Pace


class LinkTransportError(Exception):
    """Root of what a transport raises. `reason` is fit to be shown as the link's state.

    LinkTransportError
    +- LinkUnreachable   no connection to the meeting broker; try again
    +- LinkRefused       the broker said no: rights, missing exchange; mend the set-up, try again
       +- LinkTaken      another receiver holds this link's queue; it ends, or goes on in its stead
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LinkUnreachable(LinkTransportError):
    """No connection could be made."""


class LinkRefused(LinkTransportError):
    """The broker refused."""


class LinkTaken(LinkRefused):
    """Another receiver is there. After a silent cut: the broker still believes in the old one."""


class Carried(NamedTuple):
    """A frame and the user that the carrier vouches for (the broker checks `user_id`)."""

    sender: str
    frame: bytes


class TransportStatus(NamedTuple):
    """What the transport shows of the line at the moment."""

    bytes_taken: int
    """Bytes that the line has taken so far: a slow line's sign of progress."""
    bytes_waiting: int
    """Bytes handed over and not yet taken."""
    blocked: bool
    """The carrier takes nothing at present (`connection.blocked`): no time-out runs."""
    held_back: bool = False
    """Some wait for the link's rate, and the line takes all that is let through."""


class LinkListener(Protocol):
    """Who is told what comes. Called from the event loop, never from within `send`."""

    def on_frames(self, frames: Sequence[Carried]) -> None:
        """These came, in order; once a read."""
        ...

    def on_returned(self, head: bytes) -> None:
        """The carrier returned a frame because nobody is there to take it; `head` is at least
        the first `wire.HEAD_BYTES` of it, to tell a late return from one that matters.
        """
        ...

    def on_closed(self, reason: str) -> None:
        """The connection is gone. Called once, also after `abort` and `close`."""
        ...


class LinkEnd(Protocol):
    """One end of a link: the sender's (data out, acks in) or the receiver's (the reverse)."""

    @property
    def status(self) -> TransportStatus: ...

    def listen(self, listener: LinkListener) -> None:
        """From now on tell this listener; what came before is told at once. Call it once."""
        ...

    def pace(self, pace: Pace) -> None:
        """From now on what is handed over waits for its turn. Call it once."""
        ...

    def send(self, frame: bytes) -> None:
        """Hand over; never blocks, nor fails: after the end it does nothing. The caller bounds
        what it hands over (the window).
        """
        ...

    def abort(self, reason: str) -> None:
        """Drop the connection at once, with whatever it still holds."""
        ...

    async def close(self) -> None:
        """Close in good order, within seconds; idempotent."""
        ...


class LinkConnector(Protocol):
    """Makes one end of one link, again and again."""

    async def connect(self) -> LinkEnd:
        """A new connection, its queue declared and consumed. Raises LinkTransportError."""
        ...
