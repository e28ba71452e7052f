"""Place of one slot of a site: its number, and what it shares with the node's other slots."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from relay.links.uplink import Uplink
from relay.tracing.batch_trace import BatchTrace


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """Place of a slot at one node. All but the number may be shared by the site's slots."""

    slot: int
    orders: Path
    """Folder of what an operator holds back."""
    uplink: Uplink = field(default_factory=lambda: Uplink(time.monotonic))
    """Gates of what the site sends."""
    trace: BatchTrace | None = None
    """Reports of batches on their way, or None while nothing is traced."""

    @classmethod
    def of(cls, folder: Path, now: Callable[[], float]) -> SlotPlace:
        """Return the place of a site's only slot, with the site's folder."""
        return cls(0, folder, Uplink(now))
