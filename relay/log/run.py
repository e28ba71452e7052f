"""What a log's writer is told, and what it tells: settings, events, states, runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from relay.batches.batch import BatchHeader
from relay.log.knowledge import UnknownRecord


class Appended(Enum):
    """What became of a batch that was to be appended."""

    LOGGED = "appended now, and confirmed"
    ALREADY_LOGGED = "the log had a batch of that name"


class LogState(Enum):
    """Where the writer is."""

    CONNECTING = "connecting"
    CHECKING = "checking what the log has"
    RUNNING = "running"
    CLOSED = "closed"


class LogRun(NamedTuple):
    """One connection to the log, checked. `id` is new at each; `log_id` only when the log lost
    something or was made anew. `ended` is done, with the reason, when the connection is gone.
    """

    id: bytes
    log_id: bytes
    ended: asyncio.Future[str]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the log is kept."""

    check_every_s: float = 1.0
    """Read back what was appended: more often costs the broker, less often lets stored positions
    lag further, and a restart read more."""
    check_after_names: int = 5_000
    """... or after so many, so that the offsets of hot batches stay good lower bounds."""
    unreadable_after_s: float = 10.0
    """Confirmed and not readable for so long: the connection is given up and the log checked."""
    backoff_first_s: float = 0.2
    backoff_most_s: float = 30.0
    hot_bytes: int = 8 * 1024 * 1024
    """Memory for readers that have nearly caught up."""


def _no_state(state: LogState, why: str) -> None:
    return None


def _raise(error: UnknownRecord) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class LogEvents:
    """What the log tells its node. All are called from the event loop and must not block."""

    on_bad_record: Callable[[int, bytes, str], None]
    """A record that is no batch, once: offset, bytes, reason. It belongs in quarantine."""
    on_superseded: Callable[[BatchHeader], None]
    """Somebody else's mark for this site stands behind ours: another node has taken over."""
    on_state: Callable[[LogState, str], None] = _no_state
    """Changed state, and why."""
    on_unknown: Callable[[UnknownRecord], None] = _raise
    """The log holds what only another version of this program can read: nothing that stands behind
    it is read any more, and the node must end. What it appends until then is still confirmed."""
