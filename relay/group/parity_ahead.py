"""Parity that a publisher sends behind a frame before any site asks for a piece. Pure.

An answer comes a NACK and a round trip later, and by then other frames wait behind the frame that
lacks a piece. So as much parity goes ahead as leaves about a tenth of the frames to be asked for:
none where nothing is lost, and more for frames of more pieces.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass

_GAIN = 0.2
"""Pieces by which a piece that is asked for raises what goes ahead."""
_LEFT_TO_NACKS = 0.1
"""Pieces a frame that sites may ask for on average. Fewer would need ever more parity, of which
nearly all comes in vain.
"""
_MOST = 0.25
"""Largest part of a frame's pieces that goes ahead of NACKs. What a narrow line drops shows in the
NACKs above that part, and slows the publisher.
"""
_REMEMBERED = 4096
"""Latest frames whose first NACK counts."""


@dataclass(slots=True)
class _Level:
    """Parity for frames of a similar number of pieces."""

    pieces: float = 0.0
    owed: float = 0.0
    """Part of a piece that earlier frames have left to the next."""


class ParityAhead:
    """Number of parity pieces that go ahead of NACKs, learned from the NACKs that come."""

    def __init__(self) -> None:
        self._levels: defaultdict[int, _Level] = defaultdict(_Level)
        self._counts: OrderedDict[int, int] = OrderedDict()
        """Numbers of pieces of the latest frames that no site has asked for, by frame."""

    def for_frame(self, number: int, count: int) -> int:
        """Return how many parity pieces follow the frame of a number, which has `count` pieces."""
        self._counts[number] = count
        if len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
        level = self._levels[count.bit_length()]
        level.owed += min(level.pieces, _MOST * count)
        whole = int(level.owed)
        level.owed -= whole
        level.pieces = max(0.0, level.pieces - _GAIN * _LEFT_TO_NACKS)
        return whole

    def asked(self, number: int, missing: int) -> None:
        """Note that a site lacks so many pieces of a frame. The first NACK of a frame counts."""
        count = self._counts.pop(number, None)
        if count is None:
            return
        most = _MOST * count
        level = self._levels[count.bit_length()]
        level.pieces = min(most, level.pieces + _GAIN * min(missing, most))
