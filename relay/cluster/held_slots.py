"""Slots that one node of a site runs, and the part of the site's rates that goes with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relay.links.uplink import Uplink


class HeldSlots:
    """Slots of a site of so many `slots` that a node runs at present; `uplink` is the node's."""

    def __init__(self, uplink: Uplink, slots: int) -> None:
        self._uplink = uplink
        self._slots = slots
        self._held: set[int] = set()
        self._share_rates()

    @contextmanager
    def holding(self, slot: int) -> Iterator[None]:
        """Count a slot as run by this node while the block lasts."""
        self._held.add(slot)
        self._share_rates()
        try:
            yield
        finally:
            self._held.discard(slot)
            self._share_rates()

    def _share_rates(self) -> None:
        # Of the site's rates each slot has a part, used or not: no node knows what others send.
        self._uplink.share = max(1, len(self._held)) / self._slots
