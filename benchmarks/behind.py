"""Cost of a hub's links that are behind: readers of one log's backlog, without a broker.

    python -m benchmarks.behind [--batches 20000] [--chunk 10] [--spread 0] [readers ...]

A backlog of small batches for 300 shops in turn stands in a log in memory, as after an hour without
the WAN. All readers begin at once, `--spread` batches apart, and read to its end. CPU seconds, and
how often the log was read from a place on; the broker's own work is not in it, nor the socket's:
both go with how often the log is read.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from unittest.mock import patch

from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Place, Series
from relay.batches.format import seal
from relay.log.memory_log import MemoryLog, MemoryStream
from relay.log.reader import LogReader
from relay.log.run import LogEvents
from relay.log.snapshot import LogMemory
from relay.log.writer import LogWriter

READ_BYTES = 1024 * 1024
SHOPS = 300
NOW = 1_700_000_000_000


class _NoMemory(LogMemory):
    """Log memory of a node without an earlier run."""

    def load(self) -> bytes | None:
        return None

    def save(self, snapshot: bytes) -> None:
        return None

    async def synced(self) -> None:
        return None


def batch_for_a_shop(number: int) -> tuple[BatchHeader, bytes]:
    """One message of 200 bytes."""
    shop = (f"s{number % SHOPS:03}",)
    name = BatchName(Series("paris", bytes(8), "prices", 0, shop), number // SHOPS)
    entry = Entry(number.to_bytes(16, "big"), b"store.price", b"\x00\x00", b"x" * 200, NOW)
    header = BatchHeader(
        BatchKind.MESSAGES, name, number, (), "r1", 1, 0, 0, 0, NOW, NOW, ("paris",)
    )
    return seal(header, [entry])


def backlog(batches: int, chunk: int) -> MemoryStream:
    stream = MemoryStream()
    for first in range(0, batches, chunk):
        numbers = range(first, min(first + chunk, batches))
        stream.append_alien(*(batch_for_a_shop(number)[1] for number in numbers))
    return stream


async def read_to_end(reader: LogReader, last: BatchName) -> None:
    while (await reader.next_batches(READ_BYTES))[-1].place.name != last:
        await asyncio.sleep(0)  # a link has other things to do as well


async def measure(stream: MemoryStream, batches: int, readers: int, spread: int) -> None:
    """One life of a writer with so many readers."""
    writer = LogWriter(
        stream.open,
        _NoMemory(),
        LogEvents(on_bad_record=lambda *_: None, on_superseded=lambda _: None),
        origin="rome",
    )
    living = asyncio.create_task(writer.run_forever())
    await writer.running()
    places: list[Place | None] = [
        Place(number, batch_for_a_shop(number)[0].name) if number else None
        for number in ((spread * n) % (batches // 2) for n in range(readers))
    ]
    last = batch_for_a_shop(batches - 1)[0].name
    with patch.object(MemoryLog, "read", autospec=True, side_effect=MemoryLog.read) as read:
        began = time.process_time()
        each = [writer.reader(place, name="link") for place in places]
        await asyncio.gather(*(read_to_end(reader, last) for reader in each))
        took = time.process_time() - began
        given = sum(batches - (place.offset if place else 0) for place in places)
        print(
            f"{readers:4} readers: {took:8.2f} s CPU, {took / given * 1e6:6.2f} us a batch "
            f"and reader, read from {read.await_count} places",
            flush=True,
        )
    for reader in each:
        await reader.close()
    await writer.close()
    await living


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--chunk", type=int, default=10)
    parser.add_argument("--spread", type=int, default=0)
    parser.add_argument("readers", type=int, nargs="*", default=[1, 10, 100, 300])
    options = parser.parse_args()
    stream = backlog(options.batches, options.chunk)
    for readers in options.readers:
        asyncio.run(measure(stream, options.batches, readers, options.spread))


if __name__ == "__main__":
    main()
