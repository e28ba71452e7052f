"""What a link's receiver asks its driver to do, and what it is told of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from relay.batches.batch import BatchHeader
from relay.batches.known_formats import Formats
from relay.links.wire import Ask, Send, Welcome, encode_welcome


class Append(NamedTuple):
    """Append this to the log after all earlier ones, and tell `appended` or `log_lost`."""

    header: BatchHeader
    data: bytes
    session: int
    number: int


class Quarantine(NamedTuple):
    """Put these bytes aside for a human, with the reason. They are not in the log."""

    data: bytes
    reason: str


class Learn(NamedTuple):
    """Keep the sites of a revision, `encode_members`' bytes, before the next batch is appended."""

    revision: str
    sites: bytes


ReceiverAction: TypeAlias = Send | Append | Quarantine | Learn


class LogFacts(NamedTuple):
    """What the receiver says of its log in a welcome. `logged` encodes the names, at that time."""

    run: bytes
    log_id: bytes
    logged: Callable[[], bytes]

    def welcome(self, ask: Ask, formats: Formats, version: int, wall_ms: int) -> bytes:
        """The answer to that ASK, in that version of the link."""
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
