"""The phases of a link's sender, and what only one of its sessions knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from relay.batches.batch import BatchName
from relay.batches.known_formats import Formats
from relay.batches.name_set import NameSet
from relay.links.window import LinkWindow


class SenderPhase(Enum):
    DISCONNECTED = "disconnected"
    ASKING = "asking"
    RUNNING = "running"


MOVES: dict[SenderPhase, frozenset[SenderPhase]] = {
    SenderPhase.DISCONNECTED: frozenset({SenderPhase.ASKING}),
    SenderPhase.ASKING: frozenset({SenderPhase.RUNNING, SenderPhase.DISCONNECTED}),
    SenderPhase.RUNNING: frozenset({SenderPhase.ASKING, SenderPhase.DISCONNECTED}),
}


class IllegalMove(Exception):
    """An event that cannot happen in this phase: the driver is wrong. Nothing was changed."""

    def __init__(self, old: SenderPhase, new: SenderPhase) -> None:
        super().__init__(f"a link's sender cannot go from {old.value} to {new.value}")


class Unread(NamedTuple):
    """A batch that the receiver of this run does not know to read. It is not sent again before
    another version may run there: over weeks of upgrading, a thin line would carry it for nothing.
    """

    run: bytes
    name: BatchName
    reason: str


@dataclass(slots=True)
class SenderSession:
    """What only one session knows."""

    nonce: bytes
    run: bytes
    began_at: float
    window: LinkWindow
    logged: NameSet
    heard_at: float
    progress_at: float
    version: int
    """Of the link, in which both ends speak."""
    reads: Formats
    """What the receiver said of itself."""
    stands: str = ""
    """Why nothing more is sent: the receiver cannot read the batch that is next."""
    arrived: int = 0
    acked: bool = False
    acked_at: float = 0.0
    told: set[str] = field(default_factory=set)
    """Revisions of which the receiver has been told the sites."""
