"""What the barrier answers: a verdict a message, and the claims that go with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Verdict(IntEnum):
    """What the barrier says about one message."""

    NEW = 1
    """Never seen: deliver. Claimed by this judgement."""
    CONFLICT = 2
    """The identity was seen with other content: deliver and count. Claimed by this judgement."""
    DUPLICATE = 3
    """Delivered before from another place: suppress."""
    REPLAY = 4
    """Delivered before from this very place: nothing to do, nothing to count."""
    TWIN = 5
    """The same as an earlier message that this claimant has in hand, not committed yet: a
    duplicate if that one is delivered; else release from here on and judge again."""
    CLAIMED = 6
    """Being delivered by another flow at this moment: wait for its outcome, judge again. Always
    the last verdict of a judgement: what is behind it must wait too, and a flow that waits holds
    no claim on it (else two flows could wait for each other for ever)."""


class BarrierMisuse(Exception):
    """The caller broke the order of judge, commit, release: a mistake of ours."""


@dataclass(slots=True)
class Judgement:
    """The answer to one `judge`, and the claims that it holds. Parts may end one by one.

    There are as many verdicts as messages, or fewer when the last is CLAIMED.
    """

    claimant: object
    keys: list[bytes]
    contents: list[bytes]
    places: list[bytes]
    verdicts: list[Verdict]
    second_keys: dict[int, bytes]
    """Index -> the key under which a CONFLICT is remembered."""
    twins: dict[int, int | None]
    """Index of a TWIN -> index of the message it repeats; None: one of an earlier judgement."""
    blocked_on: bytes | None
    """The claimed key that ended the judgement."""
    whole: bool
    """Every verdict is NEW and no entry was committed or released on its own."""
    repair_keys: dict[int, bytes] = field(default_factory=dict)
    """Index -> the key under which it is remembered that a repair brought this message."""

    def __len__(self) -> int:
        return len(self.verdicts)
