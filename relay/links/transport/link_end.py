"""Seam between the state machines of a link and the carrier of their frames.

A transport carries whole frames (bytes), and vouches for their user. It may lose, repeat or forget
frames, and only sometimes reports so. Twins: `rabbit` (exchanges on the meeting broker) and
`memory` (virtual time), under one contract suite. A `LinkEnd` is a connection; once closed, it
stays closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from relay.bulk_amqp.paced_writer import Pace


class LinkTransportError(Exception):
    """Root of the errors that a transport raises. `reason` is fit to be shown as the link's state.

    LinkTransportError
    +- LinkUnreachable   no connection to the meeting broker; try again
    +- LinkRefused       the broker refused: rights, missing exchange; mend the set-up, try again
       +- LinkTaken      another receiver holds the link's queue; it ends, or goes on in its stead
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LinkUnreachable(LinkTransportError):
    """No connection could be made."""


class LinkRefused(LinkTransportError):
    """The broker refused."""


class LinkTaken(LinkRefused):
    """Another receiver is there; after a silent cut, the broker still believes in the old."""


class Carried(NamedTuple):
    """Frame, and the user that the carrier vouches for (the broker checks `user_id`)."""

    sender: str
    frame: bytes


class TransportStatus(NamedTuple):
    """Present state of a connection as its sender sees it."""

    bytes_taken: int
    """Bytes that the line has taken so far: a slow line's sign of progress."""
    bytes_waiting: int
    """Bytes handed over and not yet taken."""
    blocked: bool
    """True while the carrier takes nothing (`connection.blocked`): no time-out runs."""
    held_back: bool = False
    """True if bytes wait for the link's rate while the line takes all that is let through."""


class LinkListener(Protocol):
    """Listener to a connection. Called from the event loop, never from within `send`."""

    def on_frames(self, frames: Sequence[Carried]) -> None:
        """Take frames that arrived, in order; called once a read."""
        ...

    def on_returned(self, head: bytes) -> None:
        """Take a frame returned for want of a receiver. `head` is at least its first
        `wire.HEAD_BYTES`, which distinguish late returns from returns of the present session.
        """
        ...

    def on_closed(self, reason: str) -> None:
        """Note that the connection is gone. Called once, also after `abort` and `close`."""
        ...


class LinkEnd(Protocol):
    """End of a link: the sender's (data out, acks in) or the receiver's (the reverse)."""

    @property
    def status(self) -> TransportStatus: ...

    def listen(self, listener: LinkListener) -> None:
        """Report to this listener from now on, and at once what arrived before. Call once."""
        ...

    def pace(self, pace: Pace) -> None:
        """Have frames wait for their turn from now on. Call once."""
        ...

    def send(self, frame: bytes) -> None:
        """Hand over a frame; never blocks or fails. The caller's window bounds how much."""
        ...

    def abort(self, reason: str) -> None:
        """Drop the connection at once, with all that it still holds."""
        ...

    async def close(self) -> None:
        """Close in good order, within seconds; idempotent."""
        ...


class LinkConnector(Protocol):
    """Maker of the connections of one end of a link."""

    async def connect(self) -> LinkEnd:
        """Return a new connection, its queue declared and consumed. Raises LinkTransportError."""
        ...
