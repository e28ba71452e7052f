"""Sites of a group with logs and clocks: what members publish, forge and flood."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from relay.batches.batch import BatchHeader, BatchName
from relay.batches.known_formats import KNOWN
from relay.group import group_task
from relay.group.carrier import GroupUnreachable, OnDatagram
from relay.group.datagram import (
    DatagramSealer,
    FramePiece,
    GroupMessage,
    GroupPulse,
    GroupStream,
    Nack,
    new_epoch,
    site_id,
)
from relay.group.group_task import GroupParts, GroupTask
from relay.group.memory_carrier import MemoryGroup
from relay.group.publisher import encode_frame
from relay.group.settings import GroupSettings
from relay.log.writer import LogWriter
from tests.hostile.decoders import SIGNED
from tests.log_world import LogWorld
from tests.relay.link_chain import LoopClock
from tests.signed_batches import signed_batch, signer
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

PARIS, LYON, LIMA = "paris", "lyon", "lima"
KEY, ALIKE = bytes(32), bytes(range(32))
MIB = 1024 * 1024
VOID: set[int] = set()
"""Sequences of batches that are void at their origin."""


@dataclass
class GroupSite:
    """Site with its log and its membership."""

    name: str
    world: LogWorld
    writer: LogWriter
    task: GroupTask
    appended: list[BatchName] = field(default_factory=list)
    """Batches that the group has brought, in the order in which the log took them."""

    async def publish(self, *sequences: int) -> None:
        """Log batches of the site's own."""
        for sequence in sequences:
            await self.writer.append_nowait(*signed_batch(sequence, origin=self.name))

    async def brings(self, *sequences: int, origin: str = PARIS) -> None:
        """Log batches as a link brings them."""
        for sequence in sequences:
            await self.writer.append_nowait(
                *signed_batch(sequence, origin=origin, path=(origin, self.name))
            )


@asynccontextmanager
async def group_of(
    *names: str, **settings: int
) -> AsyncIterator[tuple[MemoryGroup, list[GroupSite]]]:
    """Sites that publish and listen; ended when the block ends."""
    group = MemoryGroup(asyncio.get_running_loop().call_later, lambda sender, receiver: [0.001])
    sites: list[GroupSite] = []
    lives: list[asyncio.Future[None]] = []
    for name in names:
        world = LogWorld(origin=name)
        writer = world.make_writer()
        lives.append(asyncio.ensure_future(writer.run_forever()))
        await writer.running()
        appended: list[BatchName] = []
        task = GroupTask(parts_of(name, names, group, writer, appended, settings))
        sites.append(GroupSite(name, world, writer, task, appended))
        lives.append(asyncio.ensure_future(task.run()))
        await until(lambda task=task: task.reason == "", "joined", 10)
    try:
        yield group, sites
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


def parts_of(
    name: str,
    names: tuple[str, ...],
    group: MemoryGroup,
    writer: LogWriter,
    appended: list[BatchName],
    settings: dict[str, int],
) -> GroupParts:
    chance = random.Random(name)
    return GroupParts(
        agreement=ALIKE,
        own=name,
        keys=[KEY],
        replayers=[LYON],
        settings=GroupSettings(rate=2_500_000.0, **settings),
        open_carrier=lambda: group.join(name),
        writer=writer,
        sites=tuple(other for other in names if other != name),
        formats=KNOWN,
        is_undecided=lambda header: False,
        is_void=lambda header: header.name.sequence in VOID,
        check=SIGNED.check,
        knows=lambda revision, wall_ms: True,
        goes=lambda header: True,
        takes=lambda header: True,
        on_linked=lambda headers: None,
        on_there=lambda name, is_first: appended.append(name),
        clock=LoopClock(),
        random=chance.random,
        random_bytes=chance.randbytes,
    )


@dataclass
class Forger:
    """Member that sends in the name of paris, in an epoch after any that paris has begun."""

    group: MemoryGroup

    def __post_init__(self) -> None:
        self.stream = GroupStream(site_id(PARIS), new_epoch(1 << 42, bytes(8)))
        self.sealer = DatagramSealer(ALIKE, KEY, self.stream)
        self.carrier = self.group.join("forger")

    def says(self, *messages: GroupMessage) -> None:
        for message in messages:
            self.carrier.send(self.sealer.seal(message))

    def frames(self, number: int, before: str, batch: tuple[BatchHeader, bytes]) -> None:
        """Send a frame that is whole in one piece."""
        frame = encode_frame(before, batch[1])
        self.says(FramePiece(self.stream, number, 0, 1, len(frame), frame))


def name_of(sequence: int) -> str:
    return str(signed_batch(sequence)[0].name)


@in_virtual_time
async def test_batches_of_a_site_come_to_the_logs_of_the_others_with_their_path() -> None:
    async with group_of(PARIS, LYON, LIMA) as (_, (paris, lyon, lima)):
        await paris.publish(*range(20))
        await until(lambda: len(lima.appended) == len(lyon.appended) == 20, "all there", 10)
        assert [name.sequence for name in lima.appended] == list(range(20))
        paths = {header.path for header in lima.world.headers}
        assert paths == {(PARIS, LIMA)}
        assert paris.appended == []


@in_virtual_time
async def test_a_batch_that_its_origin_has_not_signed_is_not_taken_nor_what_follows_it() -> None:
    async with group_of(LYON, LIMA, PARIS) as (group, (_, lima, _)):
        forger = Forger(group)
        await lima.brings(0)
        forger.says(GroupPulse(0, 0, name_of(0)))
        forger.frames(1, name_of(0), signed_batch(1, by=signer(LYON)))
        forger.frames(2, name_of(1), signed_batch(2))
        await let_pass(1.0)
        assert [header.name.sequence for header in lima.world.headers] == [0]
        assert lima.task.member is not None
        assert lima.task.member.receiver.counters["refused"] == 1
        # As the batch itself comes by a link, the one behind it may follow.
        await lima.brings(1)
        await until(lambda: len(lima.world.headers) == 3, "all there", 10)
        assert [header.name.sequence for header in lima.world.headers] == [0, 1, 2]


@in_virtual_time
async def test_a_log_that_hangs_fills_no_memory_and_gets_nothing_out_of_turn() -> None:
    async with group_of(PARIS, LYON, LIMA) as (_, (paris, lyon, lima)):
        await paris.publish(0)
        await until(lambda: lima.appended, "the first", 10)
        most, group_task._APPENDING_BYTES = group_task._APPENDING_BYTES, 2000
        try:
            lima.world.stream.hold_next_appends()
            await paris.publish(*range(1, 100))
            await until(lambda: len(lyon.appended) == 100, "all at lyon", 60)
            assert lima.task.appending_bytes < 4000
            lima.world.stream.release_held()
            lima.world.stream.break_connections()
            await let_pass(1.0)
            there = [header.name.sequence for header in lima.world.headers]
            assert there == list(range(len(there)))
            assert 1 < len(there) < 100
        finally:
            group_task._APPENDING_BYTES = most
        await lima.brings(*range(1, 100))
        await paris.publish(100)
        await until(lambda: len(lima.world.headers) == 101, "all there", 60)
        assert lima.appended[-1].sequence == 100, "by the group again"


@in_virtual_time
async def test_a_signed_batch_that_a_member_sends_out_of_its_turn_is_not_taken() -> None:
    async with group_of(PARIS, LYON, LIMA) as (group, (_, _, lima)):
        await lima.brings(0)
        Forger(group).frames(0, "", signed_batch(5))
        await let_pass(1.0)
        await lima.brings(1, 2, 3, 4)
        await let_pass(1.0)
        assert [header.name.sequence for header in lima.world.headers] == [0, 1, 2, 3, 4]


@in_virtual_time
async def test_the_first_batch_of_a_log_made_anew_waits_for_those_that_a_link_has_to_bring() -> (
    None
):
    async with group_of(PARIS, LYON, LIMA) as (_, (paris, _, lima)):
        await lima.brings(0, 1)
        assert paris.writer.checked is None
        await paris.publish(5)
        await let_pass(1.0)
        await lima.brings(2, 3, 4, 5)
        await paris.publish(6)
        await until(lambda: lima.appended, "the group goes on behind them", 10)
        assert [header.name.sequence for header in lima.world.headers] == [0, 1, 2, 3, 4, 5, 6]


@in_virtual_time
async def test_a_void_batch_is_not_sent() -> None:
    VOID.add(1)
    try:
        async with group_of(PARIS, LYON, LIMA) as (_, (paris, lyon, _)):
            await paris.publish(0, 1)
            await let_pass(1.0)
            assert [name.sequence for name in lyon.appended] == [0]
    finally:
        VOID.clear()


class FailingCarrier:
    """Carrier that fails with the first datagram, as its site's membership is ended."""

    def __init__(self, at_once: Callable[[], object]) -> None:
        self._at_once = at_once

    def listen(self, on_datagram: OnDatagram) -> None:
        return

    def send(self, datagram: bytes) -> None:
        self._at_once()
        raise GroupUnreachable("the interface is gone")

    def close(self) -> None:
        return


@in_virtual_time
async def test_a_membership_that_is_ended_as_the_network_fails_ends() -> None:
    async with group_of(PARIS, LYON) as (group, (paris, _)):
        parts = parts_of(PARIS, (PARIS, LYON), group, paris.writer, [], {})
        ending: list[asyncio.Task[None]] = []
        parts = replace(parts, open_carrier=lambda: FailingCarrier(lambda: ending[0].cancel()))
        ending.append(asyncio.create_task(GroupTask(parts).run()))
        await asyncio.wait(ending, timeout=60.0)
        assert ending[0].cancelled()


def flood(stream: GroupStream, seed: int) -> Iterator[GroupMessage]:
    """Datagrams that a hostile member makes up: frames that never end, pulses from afar, NACKs."""
    chance = random.Random(seed)
    for number in range(4000):
        far = chance.choice((number, chance.getrandbits(64) - 1, number * 1000))
        match chance.randrange(4):
            case 0:
                yield FramePiece(stream, far, chance.randrange(255), 190, 190 * 1300, bytes(1300))
            case 1:
                yield FramePiece(stream, far, 0, 1, 1300, chance.randbytes(1300))
            case 2:
                yield GroupPulse(far, 0, f"{PARIS}/{'x' * 1000}{far}")
            case 3:
                yield Nack(stream, tuple((far + n & 0xFFFF, 255) for n in range(100)))


@in_virtual_time
async def test_a_hostile_member_has_nothing_taken_and_fills_no_memory() -> None:
    async with group_of(LYON, LIMA, PARIS) as (group, (_, lima, paris)):
        await paris.publish(*range(10))
        await until(lambda: len(lima.appended) == 10, "all there", 10)
        forger = Forger(group)
        tracemalloc.start()
        try:
            for message in flood(forger.stream, 1):
                forger.says(message)
                await asyncio.sleep(0.0002)
            grown = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert grown < 64 * MIB
        assert len(lima.world.headers) == 10
        await lima.brings(10)
        await until(lambda: len(lima.world.headers) == 11, "links bring", 10)
