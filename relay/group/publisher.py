"""Publisher of a stream: batches as numbered frames, in pieces, at the group's pace. Pure.

::

    frame      2  length, the name of the batch before it in the stream, UTF-8
                  the batch

A batch that is too big for a frame, or comes while too many wait, gets no number: the links bring
it. The next frame names it all the same, so nobody appends that frame before that batch has come.
"""

from __future__ import annotations

import math
from collections import Counter, deque

from relay.group.datagram import NO_FRAME, FramePiece, GroupPulse, GroupStream, Nack
from relay.group.parity_ahead import ParityAhead
from relay.group.pieces import split
from relay.group.repairer import Repairer
from relay.group.settings import GroupSettings

_LENGTH_BYTES = 2
_LONGEST_NAME = 2 ** (8 * _LENGTH_BYTES) - 1
UNKNOWN = "?"
"""Name of a batch in place of any that cannot be told: no log has it."""


class BadGroupFrame(Exception):
    """Frame that no publisher of this version makes."""


def encode_frame(before: str, batch: bytes) -> bytes:
    """Return the frame of a batch that follows the batch named `before`; empty: it is the first.
    Raises ValueError if that name is too long for a frame.
    """
    name = before.encode()
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"a name of {len(name)} bytes")
    return len(name).to_bytes(_LENGTH_BYTES) + name + batch


def decode_frame(frame: bytes) -> tuple[str, bytes]:
    """Return the name of the batch before, and the batch. Raises BadGroupFrame."""
    start = _LENGTH_BYTES + int.from_bytes(frame[:_LENGTH_BYTES])
    if len(frame) <= start:
        raise BadGroupFrame
    try:
        return frame[_LENGTH_BYTES:start].decode(), frame[start:]
    except UnicodeDecodeError:
        raise BadGroupFrame from None


class GroupPublisher:
    """Publisher of one stream, which begins behind the batch named `before`; empty: with the first
    of all.
    """

    def __init__(
        self,
        stream: GroupStream,
        settings: GroupSettings,
        repairer: Repairer,
        before: str,
        now: float,
        counters: Counter[str],
    ) -> None:
        """`counters` are of batches: how many were sent, or why they were left to the links."""
        self._stream = stream
        self._settings = settings
        self._repairer = repairer
        self._ahead = ParityAhead()
        self._before = before
        self._next = 0
        self._names: deque[str] = deque()
        """Names of the batches in the frames that wait."""
        self._sent = GroupPulse(NO_FRAME, 0, self._told(before))
        """Last frame of which all pieces were sent."""
        self._waiting: deque[FramePiece] = deque()
        self._pulse_s = settings.pulse_first_s
        self._pulse_at = now
        self._pulse_by = math.inf
        """Time of the next pulse, however many frames follow each other."""
        self._is_behind = False
        self.waiting_bytes = 0
        """Bytes of pieces that have not been sent yet."""
        self._counters = counters

    def publish(self, name: str, batch: bytes, rate: float) -> None:
        """Send a batch after all earlier ones, at present at so many bytes a second."""
        before, self._before = self._before, name
        if self._falls_behind(rate):
            self._counters["above_the_rate"] += 1
            return
        try:
            frame = encode_frame(before, batch)
            pieces = split(frame, self._settings.piece_bytes)
        except ValueError:
            self._counters["too_big"] += 1
            return
        self._counters["published"] += 1
        number, self._next = self._next, self._next + 1
        self._names.append(name)
        self._repairer.keep(self._stream, number, pieces, len(frame))
        for index, data in enumerate(pieces):
            piece = FramePiece(self._stream, number, index, len(pieces), len(frame), data)
            self._waiting.append(piece)
        ahead = self._ahead.for_frame(number, len(pieces))
        self._waiting += self._repairer.unasked(self._stream, number, ahead)
        self.waiting_bytes += (len(pieces) + ahead) * len(pieces[0])

    def on_nack(self, nack: Nack) -> None:
        """Note what a site lacks of the stream."""
        for number, missing in nack.asked:
            self._ahead.asked(number, missing)

    def _falls_behind(self, rate: float) -> bool:
        """Return True while so much waits that links bring it sooner. Then half of that is let out
        first: each gap holds up the frame behind until the links have filled the gap.
        """
        settings = self._settings
        most = min(settings.waiting_bytes, settings.waiting_s * rate)
        self._is_behind = self.waiting_bytes > (most / 2 if self._is_behind else most)
        return self._is_behind

    @property
    def has_pieces(self) -> bool:
        """True while pieces wait to be sent."""
        return bool(self._waiting)

    def next_piece(self, now: float) -> FramePiece:
        """Return the next piece to send, which goes out now."""
        piece = self._waiting.popleft()
        self.waiting_bytes -= len(piece.data)
        if piece.piece == piece.pieces - 1:
            self._sent = GroupPulse(piece.number, 0, self._told(self._names.popleft()))
            self._pulse_s = self._settings.pulse_first_s
            # A frame that follows soon shows as well what the last one lacks.
            self._pulse_by = min(self._pulse_by, now + self._settings.pulse_busy_s)
            self._pulse_at = min(now + self._pulse_s, self._pulse_by)
        return piece

    def _told(self, name: str) -> str:
        """Return a name as a pulse tells it, which is to be no larger than other datagrams."""
        return name if len(name.encode()) <= self._settings.piece_bytes else UNKNOWN

    def pulse(self, now: float, wall_ms: int) -> GroupPulse | None:
        """Return the pulse that is due, or None."""
        if now < self._pulse_at:
            return None
        self._pulse_by = math.inf
        if self._waiting:
            self._pulse_at = now + self._settings.pulse_busy_s
        else:
            self._pulse_at = now + self._pulse_s
            self._pulse_s = min(
                self._settings.pulse_growth * self._pulse_s, self._settings.pulse_most_s
            )
        return self._sent._replace(wall_ms=wall_ms)

    def wakeup(self) -> float:
        """Return the time of the next pulse."""
        return self._pulse_at
