"""Actions that a link's sender asks its driver to carry out."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from relay.batches.batch import BatchHeader, BatchName, Place
from relay.links.position import LinkPosition
from relay.links.wire import Send


class ReadFrom(NamedTuple):
    """Read the log after `place` (None: from its start) and hand the batches in with `session`. If
    the log begins behind `reached`, batches are gone that were never acknowledged.
    """

    place: Place | None
    session: int
    reached: Place | None


class StopReading(NamedTuple):
    """Stop reading: the session is over."""


class Save(NamedTuple):
    """Save the position, and record the batches that the receiver's log got since the last."""

    position: LinkPosition
    linked: tuple[BatchHeader, ...]


class Disconnect(NamedTuple):
    """Drop the connection with all its unsent bytes, and make a new one."""

    reason: str


class GaveUpOn(NamedTuple):
    """Log an error: the receiver will never take this batch."""

    name: BatchName
    reason: str


SenderAction: TypeAlias = Send | ReadFrom | StopReading | Save | Disconnect | GaveUpOn
