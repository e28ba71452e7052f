"""What a person has said of a gap, as the ledger has it."""

from __future__ import annotations

from typing import NamedTuple


class AcceptedGap(NamedTuple):
    """`neighbour` of a link, else it is a delivery's: of the flow `origin` (cluster ID) and
    `exchange`, or of all. `why`: who accepted it, when, and what was missing.
    """

    ms: int
    site: str
    neighbour: str
    origin: str
    exchange: str
    why: str

    def __str__(self) -> str:
        if self.neighbour:
            where = f"link {self.site}-{self.neighbour}"
        else:
            where = f"delivery at {self.site}"
        return f"{where}: {self.why}"
