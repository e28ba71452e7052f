"""Change from a site's present slots to other ones: which slot has what of which. Pure.

All of an exchange goes from its former slot to its new one. A slot with a number that was there
before keeps its log, and what the log has; a further slot begins with an empty log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from federation.partitions import partition_of
from federation.slots import SlotMap


@dataclass(frozen=True, slots=True)
class SlotChange:
    """Change of one site's slots."""

    former: SlotMap
    new: SlotMap

    def keeps_log(self, slot: int) -> bool:
        """Return True if a new slot goes on with the log of the former slot of its number."""
        return slot < self.former.count

    @property
    def begun(self) -> range:
        """Numbers of new slots that begin with an empty log."""
        return range(self.former.count, self.new.count)

    @property
    def ended(self) -> range:
        """Numbers of former slots that are no more."""
        return range(self.new.count, self.former.count)

    def carries(self, former: int, new: int, exchange: str, lane: int) -> bool:
        """Return True if what a former slot knows of an exchange, in the partition of this number
        of a lane, belongs to a new slot. What is of no exchange, as a packer's mark, concerns all.
        """
        if not exchange:
            return True
        partition = partition_of(lane)
        return (
            self.former.of(exchange, partition) == former
            and self.new.of(exchange, partition) == new
        )

    def moves(self, exchange: str, partition: int = 0) -> bool:
        """Return True if the partition is in another slot than before."""
        return self.former.of(exchange, partition) != self.new.of(exchange, partition)

    def heirs(self, former: int, exchange: str | None) -> Iterable[int]:
        """Return the new slots that an entry of a former slot's barrier belongs to. `exchange` is
        None if nobody knows whose entry it is, or of which partition: all may need the entry.
        """
        if exchange is None:
            return range(self.new.count)
        return (self.new.of(exchange),) if self.former.of(exchange) == former else ()
