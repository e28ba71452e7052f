"""What a link's sender asks its driver to do."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from relay.batches.batch import BatchHeader, BatchName, Place
from relay.links.position import LinkPosition
from relay.links.wire import Send


class ReadFrom(NamedTuple):
    """Read the log after `place` (None: from its start) and hand it in with `session`. If the log
    begins behind `reached`, something is gone that was never acknowledged.
    """

    place: Place | None
    session: int
    reached: Place | None


class StopReading(NamedTuple):
    """The session is over: read no more."""


class Save(NamedTuple):
    """Keep this position, and note which batches the receiver's log has got since the last."""

    position: LinkPosition
    linked: tuple[BatchHeader, ...]


class Disconnect(NamedTuple):
    """Drop the connection, with what it still holds, and make a new one."""

    reason: str


class GaveUpOn(NamedTuple):
    """The receiver will never take this batch. Say so loudly."""

    name: BatchName
    reason: str


SenderAction: TypeAlias = Send | ReadFrom | StopReading | Save | Disconnect | GaveUpOn
