"""Parcels that do not come from egress: repairs and canaries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from relay.batches.batch import EVERY_SITE, BatchName, Entry
from relay.batches.format import total_bytes
from relay.batches.fragments import FRAGMENT_ABOVE

CANARY_LANE = 1
"""Of no exchange, as marks are; but these number themselves otherwise."""


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


@dataclass(slots=True, eq=False)
class CanaryParcel:
    """Goes to the neighbours' logs and no further."""

    made_ms: int
    name: BatchName | None = None
    """Once the log has it."""
    given_up: bool = False
    """Whether the packer ended before the log had it."""
    exchange: ClassVar[str] = ""
    lane: ClassVar[int] = CANARY_LANE
    destinations: ClassVar[tuple[str, ...]] = EVERY_SITE
    """The kind says that it stops at neighbours: to name hundreds would make it long."""
    big: ClassVar[bool] = False

    @property
    def entries(self) -> list[Entry]:
        return []

    def is_logged(self, name: BatchName) -> None:
        self.name = name

    def give_up(self) -> None:
        self.given_up = True


RequestedParcel: TypeAlias = RepairParcel | CanaryParcel
