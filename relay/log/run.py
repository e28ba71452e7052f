"""Settings, events, states and runs of a log's writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from relay.batches.batch import BatchHeader
from relay.log.knowledge import UnknownRecord
from relay.tracing.batch_trace import BatchTrace


class Appended(Enum):
    """Outcome of an append."""

    LOGGED = "appended now, and confirmed"
    ALREADY_LOGGED = "the log had a batch of that name"


class LogState(Enum):
    """State of the writer."""

    CONNECTING = "connecting"
    CHECKING = "checking what the log has"
    RUNNING = "running"
    CLOSED = "closed"


class LogRun(NamedTuple):
    """A checked connection to the log. `id` is new at each; `log_id` only when the log lost
    something or was made anew. `ended` is done, with the reason, when the connection is gone.
    """

    id: bytes
    log_id: bytes
    ended: asyncio.Future[str]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of a log's writer."""

    check_every_s: float = 1.0
    """Interval of reading back and of snapshots: shorter costs the broker; longer lets stored
    positions lag further, and a restart read more."""
    check_after_names: int = 5_000
    """Appended batches after which to save a snapshot earlier, so that a restart reads no more."""
    read_after_names: int = 48
    """Appended batches after which to read back earlier: the broker reads small batches one by one,
    and hundreds at a time keep both its and this node's processor busy for 40 ms."""
    unreadable_after_s: float = 10.0
    """Time after which a confirmed but unreadable batch ends the connection and the log is checked.
    """
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
    """Callbacks of the log to its node. All run in the event loop and must not block."""

    on_bad_record: Callable[[int, bytes, str], None]
    """Quarantine a record that is no batch: offset, bytes, reason. Called once a record."""
    on_superseded: Callable[[BatchHeader], None]
    """Report that another's mark for this site stands behind ours: another node has taken over."""
    on_state: Callable[[LogState, str], None] = _no_state
    """Report a change of state, and its reason."""
    on_unknown: Callable[[UnknownRecord], None] = _raise
    """Report a record that only another version of this program can read: nothing behind it is read
    any more, and the node must end. Appends until then are still confirmed."""
    trace: BatchTrace | None = None
    """Reports of appended batches, or None while nothing is traced."""
