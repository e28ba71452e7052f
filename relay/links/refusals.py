"""How much of what a neighbour sends goes into this site's quarantine: it is kept for a person, and
whoever sends nothing else would fill the disk at the speed of the line. What is beyond that is
refused like the rest, and only counted: the neighbour, who may have got it from others, has it.
"""

from __future__ import annotations

from relay.links.settings import LinkSettings

_MOST_REASONS = 256


class Unsure:
    """Since when it has been waited for a mesh file that says of a batch whose it is, by reason.

    Files do not reach all sites at once. But where none will ever come (a site joins, and logs have
    batches of one that had left before; a key was taken out at different times), a link must not
    stand for good.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._since: dict[str, float] = {}

    def is_over(self, reason: str, now: float) -> bool:
        """Whether that has been waited for long enough."""
        since = self._since.setdefault(reason, now)
        if len(self._since) > _MOST_REASONS:
            del self._since[next(iter(self._since))]
        return now - since >= self._most_s


class RefusalBudget:
    """One link's: a token bucket of batches and one of bytes, both full again after a day."""

    def __init__(self, settings: LinkSettings) -> None:
        self._most = (float(settings.refused_batches), float(settings.refused_bytes))
        self._left = self._most
        self._within_s = settings.refused_within_s
        self._at = 0.0

    def keeps(self, nbytes: int, now: float) -> bool:
        """Whether a refused batch of so many bytes is kept; it counts as kept then."""
        self._fill(now)
        batches, left = self._left
        if batches < 1 or left < 0:
            return False
        self._left = (batches - 1, left - nbytes)
        return True

    def _fill(self, now: float) -> None:
        part = max(0.0, now - self._at) / self._within_s
        self._at = max(self._at, now)
        batches, left = (
            min(most, left + most * part) for most, left in zip(self._most, self._left, strict=True)
        )
        self._left = (batches, left)
