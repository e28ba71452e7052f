"""How closely an audit looks."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    FINGERPRINT = "fingerprint"
    """Sums that the sites' rows bear are compared; no identity is looked at of what adds up."""
    EXACT = "exact"
    """Every identity is checked, and whether it stands in two places."""

    @property
    def not_told(self) -> list[str]:
        """What an audit of this level does not tell, for people; nothing of it can be a finding."""
        if self is Level.EXACT:
            return []
        return [
            "messages that their origins packed twice, and that were delivered twice",
            "the order within what adds up",
            "of what adds up, which messages went out flagged as redelivered or repaired, or in"
            " conflict",
            "a ledger whose packed columns do not fit its own sums",
        ]
