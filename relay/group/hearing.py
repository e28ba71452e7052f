"""Figures of what a site hears of its group: of whom, when, and how much got lost lately. Pure.

Each datagram bears a counter of its sender's, so the counters that did not come are the loss,
whatever the datagrams were for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from relay.group.datagram import NO_FRAME, FramePiece, GroupPulse, Received

LATELY_S = 30.0
"""Least time that the loss is of; the most is twice as long."""


class HeardFigures(NamedTuple):
    """Figures of what one site hears of another."""

    at: float
    """Time of the last datagram."""
    sent: int
    """Datagrams that the other has sent lately."""
    missing: int
    """Datagrams of these that did not come."""
    pulses_alone: int
    """Pulses since the last piece that told of further frames: small datagrams come, large ones
    do not.
    """


class _Stretch(NamedTuple):
    """Beginning of a stretch of time: the highest counter, and the number of datagrams so far."""

    began: float
    highest: int
    came: int


@dataclass(slots=True)
class _Heard:
    """Datagrams of one epoch of a sender."""

    epoch: bytes
    at: float
    highest: int
    former: _Stretch
    present: _Stretch
    came: int = 0
    reached: int | None = None
    """Number of the latest frame that is known of; None: of none yet."""
    pulses_alone: int = 0

    def reach(self, number: int) -> bool:
        """Note a frame's number; return True if the stream has gone on by it."""
        former, self.reached = self.reached, max(number, self.reached or 0)
        return former is not None and number > former


class HeardSites:
    """Sites that are heard since a site has joined its group, at `since`."""

    def __init__(self, since: float) -> None:
        self.since = since
        self._heard: dict[bytes, _Heard] = {}

    def note(self, received: Received, now: float) -> None:
        """Note a datagram that has come for the first time."""
        sender, message, counter = received
        heard = self._heard.get(sender.publisher)
        if heard is None or heard.epoch < sender.epoch:
            start = _Stretch(now, counter - 1, 0)
            heard = _Heard(sender.epoch, now, counter - 1, start, start)
            self._heard[sender.publisher] = heard
        elif heard.epoch > sender.epoch:
            return  # a straggler from before its sender's last start
        if now - heard.present.began >= LATELY_S:
            heard.former = heard.present
            heard.present = _Stretch(now, heard.highest, heard.came)
        heard.at = now
        heard.came += 1
        heard.highest = max(heard.highest, counter)
        match message:
            case FramePiece(stream, number) if stream == sender:
                heard.reach(number)
                heard.pulses_alone = 0
            case GroupPulse(number) if number != NO_FRAME:
                heard.pulses_alone += heard.reach(number)

    def of(self, site: bytes) -> HeardFigures | None:
        """Return the figures of a site, by its short ID; None if nothing of it has come."""
        heard = self._heard.get(site)
        if heard is None:
            return None
        sent = heard.highest - heard.former.highest
        came = heard.came - heard.former.came
        return HeardFigures(heard.at, sent, max(0, sent - came), heard.pulses_alone)
