"""One site in its group: its own stream, what it receives, and what it repairs. Pure.

Events go in as calls with the time; messages to send and batches to append come out. `wakeup`
returns when to call `tick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from relay.group.datagram import (
    OVERHEAD,
    FramePiece,
    GroupMessage,
    GroupPulse,
    GroupStream,
    Nack,
    Received,
)
from relay.group.pace import GroupPace
from relay.group.pieces import cut
from relay.group.publisher import GroupPublisher
from relay.group.receiver import AppendFrame, GroupLog, GroupReceiver
from relay.group.repairer import Repairer
from relay.group.settings import GroupSettings

_UDP_BYTES = 28
"""Bytes of the heads of IP and UDP, which a rate on a line includes."""


@dataclass(slots=True)
class MemberTurn:
    """Work that follows from an event, in order."""

    send: list[GroupMessage] = field(default_factory=list)
    append: list[AppendFrame] = field(default_factory=list)


class GroupMember:
    """Site with the stream `own`. `replayers` are the IDs of the sites that answer NACKs of all
    streams, by rank. `before` is the name of the last batch that the stream follows in the log.
    `counters` are of the site's own batches: sent, or why they were left to the links.
    """

    def __init__(
        self,
        *,
        own: GroupStream,
        replayers: Sequence[bytes],
        settings: GroupSettings,
        log: GroupLog,
        random: Callable[[], float],
        before: str,
        now: float,
        counters: Counter[str],
    ) -> None:
        self._own = own
        self._settings = settings
        self._replayers = tuple(replayers)
        self._pace = GroupPace(settings.rate, now)
        self._repairer = Repairer(settings, self._before)
        self._publisher = GroupPublisher(own, settings, self._repairer, before, now, counters)
        self.receiver = (
            GroupReceiver(log, settings, random, self._keep)
            if own.publisher in replayers
            else GroupReceiver(log, settings, random)
        )

    def _before(self, stream: GroupStream) -> list[bytes]:
        """Return the sites that answer for a stream before this site: the publisher is the last."""
        others = [site for site in self._replayers if site != stream.publisher]
        is_own = stream.publisher == self._own.publisher
        return others if is_own else others[: others.index(self._own.publisher)]

    def _keep(self, stream: GroupStream, number: int, frame: bytes, pieces: int) -> None:
        self._repairer.keep(stream, number, cut(frame, pieces), len(frame))

    @property
    def rate(self) -> float:
        """Present rate, in bytes a second."""
        return self._pace.rate

    def publish(self, name: str, batch: bytes) -> None:
        """Send a batch of the site's own to the group, after all earlier ones; or leave it to the
        links.
        """
        self._publisher.publish(name, batch, self._pace.rate)

    def received(self, received: Received, now: float) -> list[AppendFrame]:
        """Take in what a member of the group says; return batches to append to the log."""
        sender, message, _ = received
        if sender.publisher == self._own.publisher:
            return []  # a multicast comes back to its own machine
        match message:
            case FramePiece():
                if sender != message.stream:
                    self._repairer.heard(message)
                if message.stream.publisher == self._own.publisher:
                    return []
                return self.receiver.on_piece(message, now)
            case GroupPulse():
                return self.receiver.on_pulse(sender, message, now)
            case Nack():
                asked = self._repairer.on_nack(message, sender.publisher, now)
                if message.stream == self._own:
                    self._pace.asked(sender.publisher, asked)
                    self._publisher.on_nack(message)
                self.receiver.on_nack(message, now)
        return []

    def tick(self, now: float, wall_ms: int) -> MemberTurn:
        """Send what is due and what the pace allows."""
        turn = MemberTurn()
        for action in self.receiver.tick(now):
            if isinstance(action, AppendFrame):
                turn.append.append(action)
            else:
                turn.send.append(action)
        turn.send += self._repairs(now)
        turn.send += self._pieces(now)
        pulse = self._publisher.pulse(now, wall_ms)
        if pulse is not None:
            turn.send.append(pulse)
        return turn

    def _repairs(self, now: float) -> Iterator[FramePiece]:
        for piece in self._repairer.due(now, lambda: self._pace.may_send(now, repair=True)):
            self._pace.sent(_line_bytes(piece), repair=True)
            yield piece

    def _pieces(self, now: float) -> Iterator[FramePiece]:
        while self._publisher.has_pieces and self._pace.may_send(now):
            piece = self._publisher.next_piece(now)
            self._pace.sent(_line_bytes(piece))
            yield piece

    def wakeup(self, now: float) -> float:
        """Return the latest time at which `tick` is due, after a `tick`."""
        dues = [self._publisher.wakeup()]
        if (receive := self.receiver.wakeup()) is not None:
            dues.append(receive)
        if self._publisher.has_pieces:
            dues.append(now + self._pace.wait_s())
        repair = self._repairer.wakeup()
        if repair is not None:
            dues.append(repair if repair > now else now + self._pace.wait_s(repair=True))
        return min(dues)


def _line_bytes(piece: FramePiece) -> int:
    return len(piece.data) + OVERHEAD + _UDP_BYTES
