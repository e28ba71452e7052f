"""Answer of the barrier: a verdict per message, and the claims held by the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Verdict(IntEnum):
    """Verdict of the barrier on one message."""

    NEW = 1
    """Never seen: deliver. Claimed by this judgement."""
    CONFLICT = 2
    """Identity seen with other content: deliver and count. Claimed by this judgement."""
    DUPLICATE = 3
    """Delivered before from another place: suppress."""
    REPLAY = 4
    """Delivered before from the same place: neither deliver nor count."""
    TWIN = 5
    """Copy of an earlier message that the same claimant holds uncommitted: a duplicate if the
    earlier one is delivered; otherwise release from here on and judge again."""
    CLAIMED = 6
    """Being delivered by another flow now: wait for the outcome, then judge again. Always the last
    verdict of a judgement: later messages must wait too, and a waiting flow holds no claim on them
    (otherwise two flows could wait for each other for ever)."""


class BarrierMisuse(Exception):
    """The caller broke the order of judge, commit, release: a bug."""


@dataclass(slots=True)
class Judgement:
    """Answer to one `judge`, with its claims, which may end one by one.

    There are as many verdicts as messages, or fewer if the last is CLAIMED.
    """

    claimant: object
    keys: list[bytes]
    contents: list[bytes]
    places: list[bytes]
    verdicts: list[Verdict]
    second_keys: dict[int, bytes]
    """Index -> key under which a CONFLICT is remembered."""
    twins: dict[int, int | None]
    """Index of a TWIN -> index of the message that it repeats, or None for an earlier
    judgement's."""
    blocked_on: bytes | None
    """Claimed key that ended the judgement, or None."""
    whole: bool
    """True if every verdict is NEW and no entry was committed or released alone."""
    repair_keys: dict[int, bytes] = field(default_factory=dict)
    """Index -> key under which the repair of the message is remembered."""

    def __len__(self) -> int:
        return len(self.verdicts)
