"""Parcels that do not come from egress: repairs and canaries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from relay.batches.batch import EVERY_SITE, BatchName, Entry
from relay.batches.format import total_bytes
from relay.batches.fragments import FRAGMENT_ABOVE

CANARY_LANE = 1
"""Lane of canaries, which belong to no exchange, to number them apart from marks."""


class NotPacking(Exception):
    """The packer takes nothing at present, or ended before the log had the parcel: ask again."""


@dataclass(slots=True, eq=False)
class RepairParcel:
    """Entries of one repair batch, or one big message. Made inside the event loop."""

    exchange: str
    lane: int
    destinations: tuple[str, ...]
    """Cluster IDs, sorted: the sites that lack these messages."""
    entries: list[Entry]
    """Entries as `batches.repaired` makes them."""
    logged: asyncio.Future[BatchName] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Name of the confirmed batch (a big message's last piece), or NotPacking."""

    def is_logged(self, name: BatchName) -> None:
        """Note that the log has the whole parcel; `name` is the last batch."""
        if not self.logged.done():
            self.logged.set_result(name)

    def give_up(self) -> None:
        """Fail, as the incarnation ends: the log may have the parcel, or not."""
        if not self.logged.done():
            self.logged.set_exception(NotPacking("the packer began anew: ask again"))

    @property
    def big(self) -> bool:
        return total_bytes(self.entries) > FRAGMENT_ABOVE and len(self.entries) == 1


@dataclass(slots=True, eq=False)
class CanaryParcel:
    """Batch without messages, to the neighbours only, which proves that links carry."""

    made_ms: int
    name: BatchName | None = None
    """Name, once the log has the canary."""
    given_up: bool = False
    """True if the packer ended before the log had the canary."""
    exchange: ClassVar[str] = ""
    lane: ClassVar[int] = CANARY_LANE
    destinations: ClassVar[tuple[str, ...]] = EVERY_SITE
    """Every site, although only neighbours get canaries: naming hundreds would be long."""
    big: ClassVar[bool] = False

    @property
    def entries(self) -> list[Entry]:
        return []

    def is_logged(self, name: BatchName) -> None:
        self.name = name

    def give_up(self) -> None:
        self.given_up = True


RequestedParcel: TypeAlias = RepairParcel | CanaryParcel
