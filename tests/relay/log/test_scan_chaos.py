"""Many readers over shared scans, seeded: each gets exactly the log, in its order, from its place.

They begin anywhere, at any time, are slow or fast, are cancelled while they wait, leave in the
middle; the log grows meanwhile, with garbage and holes; connections break. What is kept is bounded
all along, and at the end nothing is left of it.
"""

from __future__ import annotations

import asyncio
import random
from unittest.mock import patch

import pytest

from relay.batches.batch import Place
from relay.log.memory_log import MemoryLog, MemoryStream
from relay.log.scans.shared_scan import LINGER_S, LogScans
from relay.log.site_log import LogClosed
from tests.log_batches import batch
from tests.virtual_time import in_virtual_time, let_pass

BATCHES = 600
READERS = 12
LARGEST_CHUNK = 30
SHORT, LONG = b"body", b"x" * 3000


class Chaos:
    """One log with its readers."""

    def __init__(self, seed: int, stretch_bytes: int) -> None:
        self.random = random.Random(seed)
        self.stream = MemoryStream()
        self.kept_bytes = self.random.choice([1, 20_000, 100_000, 1_000_000])
        self.bodies = self.random.choice([[SHORT], [SHORT, LONG], [LONG]])
        largest = 1024 + max(len(batch(0, body=body)[1]) for body in self.bodies)
        of_a_scan = LARGEST_CHUNK * largest + stretch_bytes
        self.most_bytes = self.kept_bytes + READERS * of_a_scan
        self.there: list[Place] = []
        self.complete = False
        self.log: MemoryLog | None = None
        self.scans: LogScans | None = None
        self.given = 0

    async def grow(self) -> None:
        """Somebody appends: at once at first, then bit by bit."""
        number, stream = 0, self.stream
        while number < BATCHES:
            if number > BATCHES // 2 and self.random.random() < 0.5:
                await asyncio.sleep(self.random.random() * 0.2)
            if self.random.random() < 0.1:
                stream.append_alien(b"garbage", flaw=self.random.choice(["", "damaged"]))
            if self.random.random() < 0.1:
                stream.skip_offsets(self.random.randint(1, 5))
            chunk: list[bytes] = []
            for _ in range(self.random.randint(1, LARGEST_CHUNK)):
                header, data = batch(number, body=self.random.choice(self.bodies))
                self.there.append(Place(stream.next_offset + len(chunk), header.name))
                chunk.append(data)
                number += 1
            stream.append_alien(*chunk)
        self.complete = True

    async def break_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 5)
            self.stream.break_connections()

    async def connected(self) -> LogScans:
        if self.scans is None or self.log is None or self.log.closed.done():
            if self.scans is not None:
                await self.scans.close()
            log = self.log = await self.stream.open()
            self.scans = LogScans(log, 1, self.kept_bytes)
        return self.scans

    async def read(self) -> None:
        """A reader's life, from a place to another or to the end."""
        start = self.random.randint(0, self.there[-1].offset)
        offset, got = start, list[Place]()
        most = self.random.choice([5, 100, BATCHES])
        pace = self.random.choice([0, 0, 0.001, 0.05])
        cursor = (await self.connected()).cursor(offset)
        while len(got) < most:
            if self.complete and offset > self.there[-1].offset:
                break
            waiting = asyncio.ensure_future(cursor.more())
            if self.random.random() < 0.1:
                for _ in range(self.random.randint(0, 4)):
                    await asyncio.sleep(0)
                waiting.cancel()
            await asyncio.wait([waiting])
            if waiting.cancelled():
                continue
            if isinstance(waiting.exception(), LogClosed):
                cursor.leave()
                cursor = (await self.connected()).cursor(offset)
                continue
            waiting.result()
            # Nothing is eaten here, but before a log's first offset something may have been.
            assert cursor.eaten_to in (None, self.stream.records[0].offset)
            cursor.pass_eaten()
            given = cursor.take(self.random.choice([1, 500, 100_000]))
            # From behind the end it begins with the last chunk; a reader looks for names there.
            got += [one.place for one in given if not got or one.place.offset > got[-1].offset]
            offset = cursor.offset
            assert self.scans is not None
            assert self.scans.kept_bytes <= self.most_bytes
            await asyncio.sleep(self.random.random() * pace)
        cursor.leave()
        expected = [place for place in self.there if place.offset >= start]
        assert got == expected[: len(got)]
        assert len(got) >= min(most, len(expected))
        self.given += len(got)

    async def readers(self) -> None:
        for _ in range(3):
            await asyncio.sleep(self.random.choice([0, 0.3, 3]))
            await self.read()

    async def run(self, *, breaks: bool) -> None:
        growing = asyncio.ensure_future(self.grow())
        breaking = asyncio.ensure_future(self.break_now_and_then() if breaks else asyncio.sleep(0))
        await asyncio.gather(*(self.readers() for _ in range(READERS)))
        breaking.cancel()
        await growing
        assert self.given
        assert self.scans is not None
        assert self.log is not None
        await let_pass(LINGER_S + 1)
        assert (self.scans.kept_bytes, self.scans.scan_count, self.log._cursors) == (0, 0, {})


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize(
    "seed",
    [seed if seed < 15 else pytest.param(seed, marks=pytest.mark.long) for seed in range(200)],
)
def test_each_gets_exactly_the_log_from_its_place(seed: int, breaks: bool) -> None:
    choose = random.Random(seed).choice
    stretch_bytes = choose([1, 5_000, 100_000])

    @in_virtual_time
    async def trial() -> None:
        await Chaos(seed, stretch_bytes).run(breaks=breaks)

    with (
        patch("relay.log.scans.shared_scan._NEAR", choose([0, 20, 1000])),
        patch("relay.log.scans.scan_cursor._PATIENCE_BYTES", choose([1, 10_000, 1_000_000])),
        patch("relay.log.scans.shared_scan._AHEAD_BYTES", choose([1, 10_000, 1_000_000])),
        patch("relay.log.scans.stretch.STRETCH_BYTES", stretch_bytes),
    ):
        trial()
