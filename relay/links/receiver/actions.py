"""Actions that a link's receiver asks of its driver, and the facts about the log that it is
given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from relay.batches.batch import BatchHeader
from relay.batches.known_formats import Formats
from relay.links.wire import Ask, Send, Welcome, encode_welcome


class Append(NamedTuple):
    """Append the batch to the log after all earlier ones, and report `appended` or `log_lost`."""

    header: BatchHeader
    data: bytes
    session: int
    number: int


class Quarantine(NamedTuple):
    """Put the bytes aside for a person, with the reason. They are not in the log."""

    data: bytes
    reason: str


class Learn(NamedTuple):
    """Keep the sites of a revision (`encode_members`) before the next batch is appended."""

    revision: str
    sites: bytes


ReceiverAction: TypeAlias = Send | Append | Quarantine | Learn


class LogFacts(NamedTuple):
    """Facts about the log, for a WELCOME. `logged` encodes the names at the time of the call."""

    run: bytes
    log_id: bytes
    logged: Callable[[], bytes]

    def welcome(self, ask: Ask, formats: Formats, version: int, wall_ms: int) -> bytes:
        """Return the answer to an ASK, in the given version of the link."""
        welcome = Welcome(
            ask.nonce,
            self.run,
            wall_ms,
            ask.wall_ms,
            self.log_id,
            self.logged(),
            formats,
            version,
        )
        return encode_welcome(welcome)
