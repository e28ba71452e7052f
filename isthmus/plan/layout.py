"""Layout of a drawing: rings round the middle of the mesh. Pure.

The middle is the hub, the hubs of regions, or all sites of a ring. Other spots stand around by
distance, each behind the spot it hangs on, so that lines of a tree never cross; a spot that hangs
on several stands behind the gap after the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

RING_GAP = 150.0
"""Distance (pixels) between rings."""
SLOT = 18.0
"""Arc (pixels) of the outermost ring for each spot: a line of text."""
CORE_SLOT = 130.0
"""Arc (pixels) of the innermost ring for each spot."""


@dataclass(frozen=True, slots=True)
class SpotPlace:
    """Place of a spot; `angle` is the way outwards in radians, where nothing stands further out."""

    x: float
    y: float
    angle: float
    ring: int


def laid_out(spots: Sequence[str], lines: Iterable[tuple[str, str]]) -> dict[str, SpotPlace]:
    """Return a place for each spot."""
    near: dict[str, dict[str, None]] = {spot: {} for spot in spots}
    for one, other in lines:
        if one != other:
            near[one][other] = near[other][one] = None
    middle = _middle(near)
    tree = _hung(middle, near)
    total = tree.count(middle)
    radii = _radii(tree.rings, len(middle), total)
    # From the top, clockwise.
    start = -math.pi / 2 - math.pi * tree.slots[middle[0]] / total
    places: dict[str, SpotPlace] = {}
    _place(tree, middle, start, 2 * math.pi / total, radii, 0, places)
    return places


@dataclass(slots=True)
class _Tree:
    """Tree of spots: `behind` a spot hangs on that spot alone, `beside` on others too. `slots` is
    the share of the outermost ring for a spot and all behind.
    """

    behind: dict[str, list[str]]
    beside: dict[str, list[str]]
    rings: int = 1
    slots: dict[str, float] = field(default_factory=dict)

    def count(self, spots: Sequence[str]) -> float:
        """Count and record the slots of these spots, with the spots beside them."""
        for spot in spots:
            self.slots[spot] = max(1.0, self.count(self.behind[spot]))
        return sum(self.slots[spot] + self.count(self.beside[spot]) for spot in spots)


def _middle(near: Mapping[str, Mapping[str, None]]) -> list[str]:
    """Return the spots of the innermost ring in order."""
    degree = {spot: len(others) for spot, others in near.items()}
    left, edge = dict(degree), [spot for spot in near if degree[spot] <= 1]
    last = list(near)
    while edge and len(left) > len(edge):
        last = edge
        for spot in edge:
            del left[spot]
        for spot in edge:
            for other in near[spot]:
                if other in left:
                    left[other] -= 1
        edge = [spot for spot in left if left[spot] <= 1]
    if not left or all(count == 0 for count in left.values()) or edge:
        # A tree: its centre, which is one spot or two.
        centre = list(left) or last
        return [max(centre, key=degree.__getitem__)]
    most = max(left.values())
    if most > 2 * min(left.values()):
        return [spot for spot in left if 2 * left[spot] >= most]
    return list(left)


def _hung(middle: Sequence[str], near: Mapping[str, Mapping[str, None]]) -> _Tree:
    tree = _Tree({spot: [] for spot in near}, {spot: [] for spot in near})
    seen, ring = set(middle), list(middle)
    while len(seen) < len(near):
        outer: dict[str, list[str]] = {}
        for spot in ring:
            for other in near[spot]:
                if other not in seen:
                    outer.setdefault(other, []).append(spot)
        for other, inner in outer.items():
            where = tree.behind if len(inner) == 1 else tree.beside
            where[inner[0]].append(other)
        if not outer:
            # Not joined to the rest at all.
            lone = next(spot for spot in near if spot not in seen)
            tree.behind[ring[0]].append(lone)
            outer[lone] = []
        seen.update(outer)
        ring = list(outer)
        tree.rings += 1
    return tree


def _radii(rings: int, core: int, slots: float) -> list[float]:
    radii = [0.0 if core == 1 else max(90.0, core * CORE_SLOT / (2 * math.pi))]
    while len(radii) < rings:
        radii.append(radii[-1] + RING_GAP)
    wanted = slots * SLOT / (2 * math.pi)
    if rings > 1 and radii[-1] < wanted:
        # All outer rings move out, so that lines keep an even length.
        factor = (wanted - radii[0]) / (radii[-1] - radii[0])
        radii = [radii[0] + (radius - radii[0]) * factor for radius in radii]
    return radii


def _place(
    tree: _Tree,
    spots: Sequence[str],
    start: float,
    per_slot: float,
    radii: Sequence[float],
    ring: int,
    places: dict[str, SpotPlace],
) -> float:
    """Place these spots and all that hangs on them from the angle `start`; return the end angle."""
    for spot in spots:
        end = start + tree.slots[spot] * per_slot
        angle, radius = (start + end) / 2, radii[ring]
        places[spot] = SpotPlace(radius * math.cos(angle), radius * math.sin(angle), angle, ring)
        _place(tree, tree.behind[spot], start, per_slot, radii, ring + 1, places)
        start = _place(tree, tree.beside[spot], end, per_slot, radii, ring + 1, places)
    return start
