"""Seam by which the stages of a node report the way of a batch. A node that traces nothing has None
in its place, and a stage then does nothing more than to look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.batches.batch import BatchHeader
from relay.batches.opened_batch import OpenedBatch


class BatchTrace(Protocol):
    """Reports of one process's stages, implemented by `TracedBatches`. The site of each call is the
    last of the header's path; a `peer` is a cluster ID.
    """

    def logging(self, header: BatchHeader, data: bytes) -> None:
        """Note that the batch, with its whole bytes, is handed to the site's log."""
        ...

    def logged(self, header: BatchHeader) -> None:
        """Note that the log has confirmed the batch."""
        ...

    def sending(self, header: BatchHeader, data: bytes, peer: str) -> None:
        """Note that the batch goes to a neighbour."""
        ...

    def sent(self, headers: Sequence[BatchHeader], peer: str) -> None:
        """Note that the neighbour's log has these batches."""
        ...

    def delivered(
        self, header: BatchHeader, messages: OpenedBatch, since_ms: int, count: int
    ) -> None:
        """Note that the site is done with the batch, `count` of whose messages it has delivered, at
        work since a time in ms since 1970.
        """
        ...


@dataclass(frozen=True, slots=True)
class LinkTrace:
    """Reports of a link's sender."""

    trace: BatchTrace
    peer: str
    """Cluster ID of the receiver."""
