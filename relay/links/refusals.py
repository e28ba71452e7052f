"""How much a neighbour may have put into this site's quarantine: what is refused is kept for a
person, and whoever sends nothing else would fill the disk at the speed of the line.
"""

from __future__ import annotations

from relay.links.settings import LinkSettings

TOO_MUCH = "nearly all that it sends is refused: look into the quarantine, and at who sends it"


class RefusalBudget:
    """One link's: a token bucket of batches and one of bytes, both full again after a day."""

    def __init__(self, settings: LinkSettings) -> None:
        self._most = (float(settings.refused_batches), float(settings.refused_bytes))
        self._left = self._most
        self._within_s = settings.refused_within_s
        self._at = 0.0

    def spend(self, nbytes: int, now: float) -> None:
        """A batch of so many bytes is refused."""
        self._fill(now)
        batches, left = self._left
        self._left = (batches - 1, left - nbytes)

    def is_spent(self, now: float) -> bool:
        """Whether nothing more should be taken that may have to be refused."""
        self._fill(now)
        return min(self._left) <= 0

    def _fill(self, now: float) -> None:
        part = max(0.0, now - self._at) / self._within_s
        self._at = max(self._at, now)
        batches, left = (
            min(most, left + most * part) for most, left in zip(self._most, self._left, strict=True)
        )
        self._left = (batches, left)
