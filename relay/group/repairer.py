"""Answers to NACKs: parity of frames that a site has, by rank. Pure.

Parity is good for whatever piece a site lacks, so all that ask for one frame get the same pieces,
as many as the worst of them needs. A site answers at once where all of a lower rank have asked for
the frame themselves, and otherwise waits for them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.group.datagram import MOST_PIECES, FramePiece, GroupStream, Nack
from relay.group.pieces import parity
from relay.group.settings import GroupSettings

_MOST_ASKED = 256
"""Frames that are answered at a time; the others are asked for again, or come by links."""


_MOST_ANSWER = 5
"""Most sites that answer for a stream: four replayers, and the publisher."""


class _FrameName(NamedTuple):
    stream: GroupStream
    number: int


@dataclass(slots=True)
class _SentFrame:
    """Frame that may be asked for."""

    pieces: Sequence[bytes]
    size: int
    rank: int
    """Number of sites that answer for the stream before this site."""
    parity_sent: int = 0
    asked_by: Counter[bytes] = field(default_factory=Counter)
    """Most pieces that each site has lacked at a time."""

    @property
    def nbytes(self) -> int:
        return len(self.pieces) * len(self.pieces[0])

    def next_index(self, asked: _Asked) -> int:
        """Return the index of the next piece to send: of parity that was not sent lately, or of
        the pieces themselves while all are wanted, or more than there is parity for.
        """
        count = len(self.pieces)
        if asked.wanted >= min(count, MOST_PIECES - count + 1):
            asked.whole += 1
            return asked.whole - 1
        return self.next_parity()

    def next_parity(self) -> int:
        """Return the index of parity that was not sent lately."""
        there = MOST_PIECES - len(self.pieces)
        self.parity_sent += 1
        # Two that answer for one frame are not to send the same.
        first = self.rank * there // _MOST_ANSWER
        return len(self.pieces) + (first + self.parity_sent - 1) % there


@dataclass(slots=True)
class _Asked:
    """Pieces of a frame that sites lack, and when this site is to send them."""

    wanted: int
    due: float
    whole: int = 0
    """Number of the frame's own pieces that were sent."""


class Repairer:
    """Frames of streams, kept to answer NACKs. `before` returns the sites that answer for a stream
    before this site does.
    """

    def __init__(
        self, settings: GroupSettings, before: Callable[[GroupStream], Sequence[bytes]]
    ) -> None:
        self._settings = settings
        self._before = before
        self._frames: OrderedDict[_FrameName, _SentFrame] = OrderedDict()
        self._kept_bytes = 0
        self._asked: dict[_FrameName, _Asked] = {}

    def keep(self, stream: GroupStream, number: int, pieces: Sequence[bytes], size: int) -> None:
        """Keep a frame, and drop the oldest ones that there is no room for."""
        kept_as = _FrameName(stream, number)
        frame = _SentFrame(pieces, size, len(self._before(stream)))
        # A replayer that lost the stream, and follows again, may have a frame whole once more.
        if (former := self._frames.pop(kept_as, None)) is not None:
            self._kept_bytes -= former.nbytes
        self._frames[kept_as] = frame
        self._kept_bytes += frame.nbytes
        while self._kept_bytes > self._settings.sent_bytes and len(self._frames) > 1:
            name, dropped = self._frames.popitem(last=False)
            self._kept_bytes -= dropped.nbytes
            self._asked.pop(name, None)

    def unasked(self, stream: GroupStream, number: int, count: int) -> Iterator[FramePiece]:
        """Yield so many parity pieces of a frame that is kept, which no site has asked for."""
        frame = self._frames[_FrameName(stream, number)]
        for _ in range(count):
            yield _piece_of(_FrameName(stream, number), frame, frame.next_parity())

    def on_nack(self, nack: Nack, site: bytes, now: float) -> int:
        """Note what a site lacks; return the bytes of these pieces, of frames that are kept. What
        the site asks for again counts once: the answer may be on its way.
        """
        nbytes, before = 0, None
        for number, missing in nack.asked:
            name = _FrameName(nack.stream, number)
            frame = self._frames.get(name)
            if frame is None or (name not in self._asked and len(self._asked) >= _MOST_ASKED):
                continue
            wanted = min(missing, len(frame.pieces))
            nbytes += max(0, wanted - frame.asked_by[site]) * len(frame.pieces[0])
            frame.asked_by[site] = max(wanted, frame.asked_by[site])
            before = self._before(nack.stream) if before is None else before
            have = sum(not frame.asked_by[other] for other in before)
            due = now + self._settings.gather_s + have * self._settings.rank_wait_s
            asked = self._asked.setdefault(name, _Asked(0, due))
            asked.due = min(asked.due, due)
            # One to spare: an answer may get lost as well, and the next comes a round trip later.
            spare = int(wanted < len(frame.pieces))
            asked.wanted = max(asked.wanted, wanted + spare)
        return nbytes

    def heard(self, piece: FramePiece) -> None:
        """Note a piece that another site has sent: it counts for whoever asked."""
        name = _FrameName(piece.stream, piece.number)
        asked = self._asked.get(name)
        if asked is not None:
            asked.wanted -= 1
            if asked.wanted <= 0:
                del self._asked[name]

    def due(self, now: float, may_send: Callable[[], bool]) -> Iterator[FramePiece]:
        """Yield the pieces to send now, for as long as `may_send`; the rest stays due."""
        for name, asked in [each for each in self._asked.items() if each[1].due <= now]:
            if not may_send():
                return
            frame = self._frames[name]
            # One by one: parity is much work, and the pace lets few go at a time.
            while asked.wanted > 0:
                if not may_send():
                    return
                index = frame.next_index(asked)
                asked.wanted -= 1
                yield _piece_of(name, frame, index)
            del self._asked[name]

    def wakeup(self) -> float | None:
        """Return the time at which the next answer is due, or None."""
        return min((asked.due for asked in self._asked.values()), default=None)


def _piece_of(name: _FrameName, frame: _SentFrame, index: int) -> FramePiece:
    """Return the piece of a frame with an index: of parity, or of the frame itself."""
    (data,) = parity(frame.pieces, [index])
    return FramePiece(name.stream, name.number, index, len(frame.pieces), frame.size, data)
