"""Levels at which an audit compares."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    FINGERPRINT = "fingerprint"
    """Compare the sums in the sites' rows; identities are read only where sums differ."""
    EXACT = "exact"
    """Compare every identity, and look for identities in two places."""

    @property
    def blind_spots(self) -> list[str]:
        """Blind spots of the level, for people; none of them can be a finding."""
        if self is Level.EXACT:
            return []
        return [
            "messages that their origins packed twice, and that were delivered twice",
            "the order within what adds up",
            "of what adds up, which messages went out flagged as redelivered or repaired, or in"
            " conflict",
            "a ledger whose packed columns do not fit its own sums",
        ]
