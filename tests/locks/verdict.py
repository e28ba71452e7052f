"""Verdict on a trial, from the beliefs of the contenders."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.locks.contenders import Belief

INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Seconds after the disturbance; None where something did not happen."""

    lost_at: float | None
    """Time at which the holder of the exclusive queue learnt that its connection was gone."""
    taken_at: float | None
    """Time at which another contender got the exclusive queue."""
    overlap_s: float
    """Time for which two contenders believed to have the exclusive queue."""
    harm: int
    """Publishes of the first holder that were confirmed while another had the lock too."""
    is_orphaned: bool
    """Nobody has the exclusive queue at the end, though others ask for it."""
    last_proof: float | None
    """Time at which the lease's first holder sent its last probe that proved anything."""
    next_proof: float | None
    """Time at which the first probe of another contender came back."""
    handovers: int
    """Number of times that the lease changed hands, by the order of probes."""

    @property
    def row(self) -> str:
        """The cells of a table in Markdown."""
        return " | ".join(
            (
                _seconds(self.lost_at),
                _seconds(self.taken_at),
                f"{self.overlap_s:.1f}",
                str(self.harm),
                "yes" if self.is_orphaned else "no",
                _seconds(self.last_proof),
                _seconds(self.next_proof),
                str(self.handovers),
            )
        )


def verdict(first: Belief, others: list[Belief], began: float, ended: float) -> Verdict:
    """Judge one trial; `began` is when the disturbance began."""
    lost = min((end for _, end in first.held if end > began), default=INFINITY)
    later = [start for each in others for start, _ in each.held if start > began]
    everybody = [first, *others]
    spans = [
        (start, min(end, ended), who) for who, b in enumerate(everybody) for start, end in b.held
    ]
    overlap, harm = 0.0, 0
    for one in spans:
        for other in spans:
            if one[2] < other[2]:
                start, end = max(one[0], other[0]), min(one[1], other[1])
                overlap += max(0.0, end - start)
                if one[2] == 0:
                    harm += sum(start < at < end for at in first.confirms)
    has_holder = any(end > ended for each in everybody for _, end in each.held)
    last_proof, next_proof, handovers = _lease(everybody, began)
    return Verdict(
        lost_at=None if lost >= ended else lost - began,
        taken_at=min(later) - began if later else None,
        overlap_s=overlap,
        harm=harm,
        is_orphaned=not has_holder,
        last_proof=last_proof,
        next_proof=next_proof,
        handovers=handovers,
    )


def _lease(everybody: list[Belief], began: float) -> tuple[float | None, float | None, int]:
    proofs = sorted((sent, came, who) for who, b in enumerate(everybody) for sent, came in b.proofs)
    after = [came for sent, came, who in proofs if who != 0 and sent > began - 1]
    next_proof = min(after, default=None)
    before = [s for s, _, who in proofs if who == 0 and (next_proof is None or s < next_proof)]
    handovers = sum(one[2] != other[2] for one, other in itertools.pairwise(proofs))
    return (
        max(before) - began if before else None,
        None if next_proof is None else next_proof - began,
        handovers,
    )


def _seconds(at: float | None) -> str:
    return "-" if at is None else f"{at:.1f}"
