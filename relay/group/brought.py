"""Tally of the batches that go over the group, by origin and by what has brought them. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from relay.batches.batch import BatchName

_JUST_NOW_S = 1.0


@dataclass(slots=True)
class BroughtFrom:
    """Batches of one origin that the site's log has got."""

    by_group: int = 0
    by_links: int = 0
    linked_at: float | None = None
    """Time of the last that a link brought."""


class BroughtBatches:
    """Batches of exchanges that go over the group, as they came to one site. Origins are named by
    cluster IDs.
    """

    def __init__(self) -> None:
        self._origins: dict[str, BroughtFrom] = {}
        self._linked: OrderedDict[BatchName, float] = OrderedDict()
        """Times of those that links have brought just now."""

    def by_group(self, origin: str) -> None:
        """Note a batch that the group has brought."""
        self._origins.setdefault(origin, BroughtFrom()).by_group += 1

    def by_link(self, name: BatchName, now: float) -> None:
        """Note a batch that a link has brought."""
        found = self._origins.setdefault(name.series.origin, BroughtFrom())
        found.by_links += 1
        found.linked_at = now
        self._linked[name] = now
        while self._linked and next(iter(self._linked.values())) < now - _JUST_NOW_S:
            self._linked.popitem(last=False)

    def is_just_linked(self, name: BatchName, now: float) -> bool:
        """Return True if a link has brought a batch so lately that the group is about as fast."""
        return self._linked.get(name, float("-inf")) >= now - _JUST_NOW_S

    def of(self, origin: str) -> BroughtFrom:
        """Return the tally of an origin."""
        return self._origins.get(origin, BroughtFrom())
