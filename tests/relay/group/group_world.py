"""A group of sites over a network in virtual time, which loses, delays and reorders datagrams."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from relay.group.datagram import FramePiece, GroupMessage, GroupStream, Nack, Received, site_id
from relay.group.member import GroupMember
from relay.group.receiver import AppendFrame
from relay.group.settings import GroupSettings

RATE = 2_500_000.0
NAME_BYTES = 32
LINKS_HOLD_S = 1.0
"""Time after which a link brings what the group has not."""


class Log:
    """Log of a site, in which a batch begins with its name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def accept(self, publisher: bytes, batch: bytes) -> str | None:
        name = batch[:NAME_BYTES].rstrip(b"\0").decode(errors="replace")
        return name if name.count("/") == 1 else None

    def has(self, name: str) -> bool:
        return name in self.names


def batch_of(name: str, size: int) -> bytes:
    return name.encode().ljust(NAME_BYTES, b"\0") + b"x" * size


@dataclass
class Host:
    """A site's member of the group, and its log."""

    name: str
    member: GroupMember
    own: GroupStream
    log: Log = field(default_factory=Log)
    counters: Counter[str] = field(default_factory=Counter)
    is_deaf: bool = False
    is_dead: bool = False
    sent_bytes: int = 0
    nacks: int = 0
    by_links: int = 0
    """Batches that a link has brought first."""
    wakes_at: float = 0.0


class GroupWorld:
    """Sites of a group. A datagram arrives at each other site by itself, or not."""

    def __init__(
        self,
        *names: str,
        loss: float = 0.0,
        seed: int = 1,
        replayers: tuple[str, ...] = (),
        settings: GroupSettings | None = None,
        delay_s: float = 0.001,
    ) -> None:
        self.now = 0.0
        self.delay_s = delay_s
        self.loss = loss
        self.settings = settings or GroupSettings(rate=RATE)
        self.chance = random.Random(seed)
        self.replayers = replayers
        self.hosts: dict[str, Host] = {}
        self.lives = 0
        self.links_brought: list[str] = []
        self.is_lost: Callable[[str, str, GroupMessage], bool] = self._is_lost
        """Return True if a datagram from a site to another is lost."""
        self._events: list[tuple[float, int, str, Received | str | None]] = []
        self._order = itertools.count()
        for name in names:
            self.start(name)

    def start(self, name: str, before: str = "") -> Host:
        """Start a site's member anew; its log stays."""
        self.lives += 1
        own = GroupStream(site_id(name), self.lives.to_bytes(16))
        log = self.hosts[name].log if name in self.hosts else Log()
        counters: Counter[str] = Counter()
        member = GroupMember(
            own=own,
            replayers=[site_id(one) for one in self.replayers],
            settings=self.settings,
            log=log,
            random=self.chance.random,
            before=before,
            now=self.now,
            counters=counters,
        )
        self.hosts[name] = Host(name, member, own, log, counters)
        self._at(self.now, name, None)
        return self.hosts[name]

    def _at(self, time: float, name: str, what: Received | str | None) -> None:
        heapq.heappush(self._events, (time, next(self._order), name, what))

    def _is_lost(self, sender: str, receiver: str, message: GroupMessage) -> bool:
        return self.hosts[receiver].is_deaf or self.chance.random() < self.loss

    def publish(self, name: str, batch: str, size: int = 20_000) -> None:
        """Log a batch at its origin, and hand it to the group."""
        host = self.hosts[name]
        host.log.names.append(batch)
        host.member.publish(batch, batch_of(batch, size))
        self._turn(host)
        for other in self.hosts:
            if other != name:
                self._at(self.now + LINKS_HOLD_S, other, batch)

    def link_brings(self, host: Host, batch: str) -> None:
        """Have a link bring a batch, unless the log has it."""
        if batch not in host.log.names:
            host.log.names.append(batch)
            host.by_links += 1
            self.links_brought.append(batch)

    def run(self, seconds: float) -> None:
        """Let time go by."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, name, what = heapq.heappop(self._events)
            host = self.hosts[name]
            if isinstance(what, str):
                self.link_brings(host, what)
            elif what is None and self.now < host.wakes_at:
                continue  # by an earlier wakeup
            elif not host.is_dead:
                if what is not None:
                    self._append(host, host.member.received(what, self.now))
                self._turn(host)
        self.now = until

    def _turn(self, host: Host) -> None:
        turn = host.member.tick(self.now, int(1000 * self.now))
        self._append(host, turn.append)
        for message in turn.send:
            self._send(host, message)
        host.wakes_at = max(self.now, host.member.wakeup(self.now))
        self._at(host.wakes_at, host.name, None)

    def _send(self, host: Host, message: GroupMessage) -> None:
        host.nacks += isinstance(message, Nack)
        if isinstance(message, FramePiece):
            host.sent_bytes += len(message.data)
        for other in self.hosts.values():
            if other is not host and not self.is_lost(host.name, other.name, message):
                delay = self.delay_s + 0.0005 * self.chance.random()
                self._at(self.now + delay, other.name, Received(host.own, message))

    def _append(self, host: Host, appends: list[AppendFrame]) -> None:
        for append in appends:
            if append.name not in host.log.names:
                host.log.names.append(append.name)
