"""What a repair puts into the log: messages that did not come from egress."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from relay.batches.batch import BatchName, Entry
from relay.batches.format import total_bytes
from relay.batches.fragments import FRAGMENT_ABOVE


class NotPacking(Exception):
    """The packer takes nothing at present, or ended before the log had it: ask again."""


@dataclass(slots=True, eq=False)
class RepairParcel:
    """The entries of one repair batch, or one big message. Made inside the event loop."""

    exchange: str
    lane: int
    destinations: tuple[str, ...]
    """Cluster IDs, sorted: the sites that lack these messages."""
    entries: list[Entry]
    """As `batches.repaired` makes them."""
    logged: asyncio.Future[BatchName] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """The batch that the log has confirmed, the last piece of a big message; NotPacking."""

    def is_logged(self, name: BatchName) -> None:
        """The log has it whole; `name` is its last batch."""
        if not self.logged.done():
            self.logged.set_result(name)

    def give_up(self) -> None:
        """The incarnation ends: the log may have it, or not."""
        if not self.logged.done():
            self.logged.set_exception(NotPacking("the packer began anew: ask again"))

    @property
    def big(self) -> bool:
        return total_bytes(self.entries) > FRAGMENT_ABOVE and len(self.entries) == 1
