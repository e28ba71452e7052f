"""Three sites in a row with their real logs' writers and link tasks, in memory and virtual time:
paris -> tokyo -> sydney. What a site's broker and its state folder have outlives its node.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from federation.mesh import ForwardingRule
from relay.batches.batch import BatchHeader, BatchName, Place
from relay.batches.format import read_header
from relay.links.forwarding import Forwarding
from relay.links.metrics import AppendTimes
from relay.links.position import LinkPosition
from relay.links.receiver.machine import LinkReceiver
from relay.links.receiver.task import LinkReceiverTask
from relay.links.sender.machine import LinkSender
from relay.links.sender.parts import SenderParts
from relay.links.sender.task import LinkSenderTask
from relay.links.settings import KIB, LinkSettings
from relay.links.transport.connection import LinkParts
from relay.links.transport.memory import MemoryEnd, MemoryMeeting
from relay.log.reader import LogGap
from relay.log.run import LogSettings
from relay.log.site_log import SiteLogError
from relay.log.writer import LogWriter
from tests.log_batches import batch
from tests.log_world import KeptSnapshot, LogWorld
from tests.waiting import until

SITES = ("paris", "tokyo", "sydney")
SETTINGS = LinkSettings(window_bytes=8 * KIB, ack_batches=8, sample_s=5.0, lookback_s=60.0)


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self.now() * 1000)


@dataclass
class Folder(KeptSnapshot):
    """A node's state folder: the log's snapshot and its link's position, in one log of writes."""

    position: bytes | None = None
    began: int | None = None
    linked_out: list[BatchName] = field(default_factory=list)
    """What its sender says the neighbour has got, and its receiver that we have."""
    linked_in: list[BatchName] = field(default_factory=list)


@dataclass
class FolderLinkMemory:
    folder: Folder

    def load(self) -> LinkPosition | None:
        kept = self.folder.position
        return None if kept is None else LinkPosition.decode(kept, LoopClock().now())

    def save(self, position: LinkPosition, linked: Sequence[BatchHeader]) -> None:
        self.folder.position = position.encode()
        self.folder.linked_out += [header.name for header in linked]

    def began(self) -> int | None:
        return self.folder.began

    def begin(self, first: int) -> None:
        self.folder.began = first


@dataclass
class SenderConnector:
    meeting: MemoryMeeting
    site: str

    async def connect(self) -> MemoryEnd:
        await asyncio.sleep(0)
        return self.meeting.sender_end(self.site)


@dataclass
class ReceiverConnector:
    meeting: MemoryMeeting
    site: str

    async def connect(self) -> MemoryEnd:
        await asyncio.sleep(0)
        return self.meeting.receiver_end(self.site)


@dataclass
class Site:
    """One site: its log, its folder, and, while it lives, its node."""

    name: str
    world: LogWorld
    meeting_in: MemoryMeeting | None
    meeting_out: MemoryMeeting | None
    next_site: str | None
    previous: str | None
    random: random.Random
    writer: LogWriter | None = None
    sender: LinkSenderTask | None = None
    receiver: LinkReceiverTask | None = None
    gaps: list[LogGap] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def folder(self) -> Folder:
        assert isinstance(self.world.memory, Folder)
        return self.world.memory

    @property
    def names(self) -> list[BatchName]:
        """What the log has, in its order."""
        return [read_header(record.data).name for record in self.world.stream.records]

    @property
    def numbers(self) -> list[int]:
        return [name.sequence for name in self.names]

    @property
    def kept(self) -> int | None:
        """Number of the batch up to which, by its folder, the link out of here has got."""
        position = FolderLinkMemory(self.folder).load()
        return position.place.name.sequence if position and position.place else None

    def start(self) -> None:
        writer = self.writer = self.world.make_writer()
        self._tasks = [asyncio.create_task(writer.run_forever())]
        if self.meeting_in is not None and self.previous is not None:
            self.receiver = LinkReceiverTask(
                LinkParts(
                    name=f"{self.previous}->{self.name}",
                    connector=ReceiverConnector(self.meeting_in, self.name),
                    writer=writer,
                    clock=LoopClock(),
                    random=self.random.random,
                ),
                LinkReceiver(
                    own=self.name,
                    neighbour=self.previous,
                    sender_user=self.previous,
                    settings=SETTINGS,
                ),
                lambda data, reason: self.quarantined.append(reason),
                lambda headers: self.folder.linked_in.extend(h.name for h in headers),
            )
            self._tasks.append(asyncio.create_task(self.receiver.run()))
        if self.meeting_out is not None and self.next_site is not None:
            self.sender = self._make_sender(self.meeting_out, self.next_site, writer)
            self._tasks.append(asyncio.create_task(self.sender.run()))

    def _make_sender(
        self, meeting: MemoryMeeting, neighbour: str, writer: LogWriter
    ) -> LinkSenderTask:
        memory = FolderLinkMemory(self.folder)
        sites = frozenset(SITES)
        reachable = frozenset(SITES[SITES.index(neighbour) :])

        def make_machine(safe_place: Callable[[Place | None], Place | None]) -> LinkSender:
            return LinkSender(
                forwarding=Forwarding(ForwardingRule.RING, self.name, neighbour, reachable, sites),
                receiver_user=neighbour,
                position=memory.load(),
                parts=SenderParts(
                    random=self.random.random,
                    random_bytes=self.random.randbytes,
                    safe_place=safe_place,
                ),
                settings=SETTINGS,
            )

        return LinkSenderTask(
            LinkParts(
                name=f"{self.name}->{neighbour}",
                connector=SenderConnector(meeting, self.name),
                writer=writer,
                clock=LoopClock(),
                random=self.random.random,
            ),
            make_machine,
            memory,
            AppendTimes(),
            lambda header: False,
            self.gaps.append,
        )

    async def end(self) -> None:
        """The node stops in good order."""
        await self._cancel()

    async def kill(self) -> None:
        """SIGKILL: what the folder has is what was written before."""
        kept = (self.folder.data, self.folder.position)
        await self._cancel()
        self.folder.data, self.folder.position = kept

    async def _cancel(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()  # a stage that failed must not look as if it had been stopped
            task.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled():
                task.result()


class Chain:
    """The three, their two meeting brokers, and what was published at paris."""

    def __init__(self, seed: int, settings: LogSettings | None = None) -> None:
        self.random = random.Random(f"chain {seed}")
        loop = asyncio.get_running_loop()
        meetings = [MemoryMeeting(loop.call_later, heartbeats_s=20.0) for _ in range(2)]
        self.meetings = meetings
        ids = count(1)
        self.sites: list[Site] = []
        for number, name in enumerate(SITES):
            world = LogWorld(memory=Folder(), settings=settings or LogSettings())
            world.random_bytes = lambda n: next(ids).to_bytes(n, "big")  # type: ignore[method-assign]
            self.sites.append(
                Site(
                    name,
                    world,
                    meetings[number - 1] if number else None,
                    meetings[number] if number < 2 else None,
                    SITES[number + 1] if number < 2 else None,
                    SITES[number - 1] if number else None,
                    self.random,
                )
            )
        self.paris, self.tokyo, self.sydney = self.sites

    def start(self) -> None:
        for site in self.sites:
            site.start()

    async def end(self) -> None:
        for site in self.sites:
            await site.end()

    async def publish(self, numbers: Sequence[int]) -> None:
        """Append these at paris until its log has them, as the packer does."""
        for number in numbers:
            header, data = batch(number)
            while True:
                writer = self.paris.writer
                assert writer is not None
                try:
                    await writer.running()
                    await writer.append(header, data)
                    break
                except SiteLogError:
                    await asyncio.sleep(0.01)

    async def until(self, done: Callable[[], bool], within_s: float = 600.0) -> None:
        await until(done, self.describe, within_s, every_s=0.1)

    async def until_kept(self, site: Site, number: int) -> None:
        """Wait until the site's folder says that its link has got to that batch."""
        await self.until(lambda: site.kept == number)

    def describe(self) -> str:
        lines = []
        for site in self.sites:
            lines.append(f"{site.name}: {sorted(site.numbers)}")
            if site.sender is not None:
                machine = site.sender.machine
                lines.append(f"  -> {machine.state} {machine.reason} {machine.counters}")
                lines.append(f"  position {machine.position and machine.position.place}")
        return "\n".join(lines)
