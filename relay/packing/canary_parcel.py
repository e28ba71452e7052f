"""A batch without messages, which a site puts into its log to see that its links carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay.batches.batch import EVERY_SITE, BatchName, Entry

CANARY_LANE = 1
"""Of no exchange, as marks are; but these number themselves otherwise."""


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
