"""The seam between a link's two machines and what carries their frames.

A transport carries whole frames (bytes) with what the carrier vouches for. It may lose, repeat
or forget, and says so only sometimes. Twins: `rabbit_transport` (exchanges on the meeting
broker), `memory_transport` (virtual time). One object is one connection; once `closed`, for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Carried(NamedTuple):
    """A frame and the user that the carrier vouches for (the broker checks `user_id`)."""

    sender: str
    frame: bytes


class LinkEnd(Protocol):
    """One end of a link: the sender's (data out, acks in) or the receiver's (the reverse)."""

    @property
    def closed(self) -> asyncio.Future[str]:
        """Done, with the reason, once the connection is gone."""
        ...

    @property
    def blocked(self) -> bool:
        """The carrier takes nothing at present (`connection.blocked`): no time-out runs."""
        ...

    @property
    def bytes_taken(self) -> int:
        """Bytes that the socket has taken so far: a slow line's sign of progress."""
        ...

    @property
    def bytes_waiting(self) -> int:
        """Bytes handed over and not yet taken by the socket."""
        ...

    def send(self, frame: bytes) -> None:
        """Hand over; never blocks. The caller bounds what it hands over (the window)."""
        ...

    def on_frames(self, callback: Callable[[list[Carried]], None]) -> None:
        """Called with what came, in order, once a read."""
        ...

    def on_nobody(self, callback: Callable[[], None]) -> None:
        """Called when the carrier returned a frame because nobody is there to take it."""
        ...

    async def close(self) -> None:
        """Close; idempotent."""
        ...
