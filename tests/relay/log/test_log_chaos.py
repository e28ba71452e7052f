"""The log's writer and its readers under everything that can happen to a log, seeded.

A neighbour offers batches 0..N again and again until the log says that it has them, as links do.
Stages read, do their work, and store their positions now and then where the writer lets them. The
node is killed; connections break with and without what they carried; bytes of dead connections
land late; strangers write; the log loses its tail, or is made anew. At the end, when all is quiet:

- what the writer takes for logged is what the log has, and it has all that was offered;
- each stage has met everything that the log has.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from relay.batches.batch import BatchName, Place
from relay.batches.format import read_header
from relay.log import recent_names
from relay.log.reader import LogReader, PlaceLost
from relay.log.run import LogSettings
from relay.log.site_log import SiteLogError
from relay.log.writer import LogWriter
from tests.log_batches import batch
from tests.log_world import KeptSnapshot, LogWorld
from tests.virtual_time import in_virtual_time, run_in_virtual_time
from tests.waiting import until

BATCHES = [batch(number) for number in range(200)]
OFFERED = {header.name for header, _ in BATCHES}

STAGES = 3
"""Of different pace: those that are behind share what is read."""

EVERYTHING = [
    "break",
    "unconfirmed",
    "hold",
    "late",
    "stranger",
    "copy",
    "hole",
    "tail",
    "anew",
    "leader",
]
EVERYTHING += ["kill", "kill"]


@dataclass
class Disk(KeptSnapshot):
    """The node's state folder: snapshot and positions, in one log of writes."""

    positions: dict[int, Place | None] = field(default_factory=dict)


@dataclass
class Trial:
    seed: int
    world: LogWorld = field(init=False)
    disk: Disk = field(default_factory=Disk)
    met: list[set[BatchName]] = field(default_factory=lambda: [set() for _ in range(STAGES)])
    strangers: int = 0
    in_order: list[list[int]] = field(default_factory=lambda: [[] for _ in range(STAGES)])

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.world = LogWorld(
            memory=self.disk,
            settings=LogSettings(
                hot_bytes=self.random.choice([2_000, 30_000, 1_000_000]),
                check_every_s=self.random.choice([0.05, 1.0]),
            ),
        )

    async def offer(self, writer: LogWriter) -> None:
        """What a neighbour does: all that the log lacks, in order, a window at a time."""
        while True:
            await writer.running()
            made = int(asyncio.get_running_loop().time() * 4)  # new ones all through the trial
            lacking = [one for one in BATCHES[:made] if one[0].name not in writer.logged]
            lacking = lacking[: self.random.randint(1, 30)]
            try:
                await asyncio.gather(*(writer.append_nowait(*one) for one in lacking))
            except SiteLogError:
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.random.random() * 0.2)

    async def stage(self, writer: LogWriter, number: int) -> None:
        reader: LogReader = writer.reader(self.disk.positions.get(number), name=f"stage {number}")
        while True:
            try:
                got = await reader.next_batches(max_bytes=self.random.choice([1, 2_000]))
            except PlaceLost:
                reader.rewind(None)
                continue
            for one in got:
                assert one.place.name == read_header(one.data).name
                self.met[number].add(one.place.name)
                self.in_order[number].append(one.place.name.sequence)
            if self.random.random() < 0.2:
                self.disk.positions[number] = writer.safe_position(got[-1].place)
            if self.random.random() < 0.1:
                await asyncio.sleep(self.random.random())

    def fault(self, kinds: list[str]) -> bool:
        """Something goes wrong; whether the node is killed by it."""
        stream = self.world.stream
        kind = self.random.choice(kinds)
        if kind == "break":
            stream.break_connections()
        elif kind == "unconfirmed":
            stream.break_after_storing()
        elif kind == "hold":
            stream.hold_next_appends()
        elif kind == "late":
            stream.break_connections()
            asyncio.get_running_loop().call_later(self.random.random(), stream.release_held)
        elif kind == "stranger":
            self.strangers += 1
            stream.append_alien(batch(self.strangers, origin="stranger")[1])
        elif kind == "copy" and stream.records:
            stream.append_alien(self.random.choice(stream.records).data)
        elif kind == "hole":
            stream.skip_offsets(self.random.randint(1, 5))
        elif kind == "tail":
            stream.lose_tail(self.random.choice([1, 3, 20, 150]))
        elif kind == "anew":
            stream.create()
        elif kind == "leader":
            stream.hide()
        return kind == "kill"

    async def run(self, kinds: list[str], faults: int = 25) -> None:
        for _ in range(faults):
            writer = self.world.make_writer()
            tasks = [
                asyncio.ensure_future(life)
                for life in (
                    writer.run_forever(),
                    self.offer(writer),
                    *(self.stage(writer, number) for number in range(STAGES)),
                )
            ]
            killed = False
            while faults and not killed:
                faults -= 1
                await asyncio.sleep(self.random.random() * self.random.choice([0.1, 1, 3]))
                killed = self.fault(kinds)
            if not killed:
                self.world.stream.break_connections()  # one that hangs is ended by its watchdog
                self.world.stream.release_held()
                await self.until_quiet(writer)
            kept = (self.disk.data, dict(self.disk.positions))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self.disk.data, self.disk.positions = kept
            if not killed:
                return
            if self.random.random() < 0.3 and faults:
                self.fault(kinds)  # while the node is down

    async def until_quiet(self, writer: LogWriter) -> None:
        there: set[BatchName] = set()

        def met_by_all() -> set[BatchName]:
            return set.intersection(*self.met)

        def is_quiet() -> bool:
            nonlocal there
            there = {read_header(r.data).name for r in self.world.stream.records if r.data}
            return there >= OFFERED and set(writer.logged) == there and there <= met_by_all()

        def how_far() -> str:
            return (
                f"seed {self.seed}: {len(OFFERED - there)} not in the log; "
                f"logged and not there: {sorted(map(str, set(writer.logged) - there))[:5]}; "
                f"there and not logged: {sorted(map(str, there - set(writer.logged)))[:5]}; "
                f"not met: {sorted(map(str, there - met_by_all()))[:5]}"
            )

        await until(is_quiet, how_far, 1000, every_s=2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot's blocks are full often: what is kept of them must not depend on it."""
    monkeypatch.setattr(recent_names, "_BLOCK_NAMES", 8)


def seeds(count: int) -> list[object]:
    """A few for every run, all of them for the long one."""
    return [
        seed if seed < 12 else pytest.param(seed, marks=pytest.mark.long) for seed in range(count)
    ]


@pytest.mark.parametrize("seed", seeds(200))
def test_nothing_is_missed_whatever_happens_to_the_log(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        await Trial(seed).run(EVERYTHING)

    trial()


@pytest.mark.parametrize("seed", [3, 38])
def test_a_trial_of_the_same_seed_is_the_same_trial(seed: int) -> None:
    trials = [Trial(seed) for _ in range(4)]
    for trial in trials:
        run_in_virtual_time(trial.run(EVERYTHING))
    assert all(trial.world.stream.records == trials[0].world.stream.records for trial in trials)
    assert all(trial.in_order == trials[0].in_order for trial in trials)


@pytest.mark.parametrize("seed", seeds(150))
def test_nothing_is_missed_when_tails_are_lost_again_and_again(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        await Trial(1000 + seed).run(["tail", "tail", "kill", "stranger", "unconfirmed"], 40)

    trial()


@pytest.mark.parametrize("seed", seeds(100))
def test_first_meetings_are_in_order_as_long_as_the_log_keeps_its_tail(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        subject = Trial(2000 + seed)
        await subject.run(["break", "unconfirmed", "late", "hold", "copy", "hole", "kill"])
        for in_order in subject.in_order:
            first = list(dict.fromkeys(in_order))
            assert first == sorted(first)

    trial()
