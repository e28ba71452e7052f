"""Time and memory of a new copy of a slot's state, by the number of identities in its barrier.

    python -m benchmarks.new_copy [--identities 10000000] [--members 1]

A journal in `members` nodes of Cassandra is filled with rows as a node writes them, of identities
that its barrier remembers. Then a copy without anything reads the journal to its end, as a node
does that begins to stand by. What is printed as it goes on is the number of identities in the copy,
identities a second, and the resident memory of the copying process in MiB; then the whole.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from benchmarks.compare.usage import memory_mb
from dedup.generations import GENERATIONS
from dedup.journal.cassandra_session import CassandraAccess, JournalSession
from dedup.journal.journal import ROW_BYTES, JournalRow
from dedup.journal.journal_row import Writes, encode_row
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from relay.node.machine import open_store
from relay.state.node_state import POINT_TABLES, TABLES

_KEY_BYTES = 16
_VALUE_BYTES = 16 + 10
"""Content hash, and place of the delivery."""
_IDENTITIES_A_ROW = ROW_BYTES // (_KEY_BYTES + _VALUE_BYTES)
_UNDER_WAY = 8
_TOLD_EVERY_S = 10.0


async def _retry(failures: int) -> None:
    await asyncio.sleep(0.5)


def _rows_of(identities: int) -> int:
    return -(-identities // _IDENTITIES_A_ROW)


def _row(count: int) -> bytes:
    """Encode a row with so many new identities."""
    writes = Writes()
    random = os.urandom(count * (_KEY_BYTES + _VALUE_BYTES))
    each = _KEY_BYTES + _VALUE_BYTES
    writes.table(GENERATIONS[0]).update(
        (random[at : at + _KEY_BYTES], random[at + _KEY_BYTES : at + each])
        for at in range(0, len(random), each)
    )
    return encode_row(writes)


async def fill(access: CassandraAccess, identities: int) -> None:
    """Write a journal of so many identities."""
    session = await asyncio.to_thread(JournalSession, access)
    journal = await asyncio.to_thread(session.journal, 0)
    owner = await SlotTaking(journal, "filler", os.urandom(16), _retry).raise_epoch()
    assert await journal.begin(owner, 0)
    rows = _rows_of(identities)
    numbers = iter(range(1, rows + 1))
    began = told = time.monotonic()

    async def write() -> None:
        nonlocal told
        for number in numbers:
            count = min(_IDENTITIES_A_ROW, identities - (number - 1) * _IDENTITIES_A_ROW)
            await journal.write(JournalRow(number, owner.epoch, _row(count)))
            if time.monotonic() > told + _TOLD_EVERY_S:
                told = time.monotonic()
                print(f"  filled {number / rows:.0%} in {told - began:.0f} s", flush=True)

    await asyncio.gather(*(write() for _ in range(_UNDER_WAY)))
    await asyncio.to_thread(session.close)


async def _copy(access: CassandraAccess, folder: Path, identities: int) -> None:
    session = await asyncio.to_thread(JournalSession, access)
    journal = await asyncio.to_thread(session.journal, 0)
    store = open_store(folder / "copy", COPY)
    copy = SlotCopy(store, TABLES, POINT_TABLES)
    began = time.monotonic()

    async def tell() -> None:
        while True:
            await asyncio.sleep(_TOLD_EVERY_S)
            there, passed = copy.last_row * _IDENTITIES_A_ROW, time.monotonic() - began
            memory = memory_mb(os.getpid())
            print(f"  {there:,} identities, {there / passed:,.0f}/s, {memory:.0f} MB", flush=True)

    telling = asyncio.create_task(tell())
    before = memory_mb(os.getpid())
    await catch_up(journal, copy)
    passed = time.monotonic() - began
    telling.cancel()
    rows = _rows_of(identities)
    assert copy.last_row == rows, f"{copy.last_row} rows of {rows}"
    most = memory_mb(os.getpid(), "VmHWM")
    print(
        f"{identities:,} identities: {passed:.1f} s, {identities / passed:,.0f}/s"
        f"; memory {before:.0f} MB before, at most {most:.0f} MB",
        flush=True,
    )
    store.close()
    await asyncio.to_thread(session.close)


def _copy_alone(access: CassandraAccess, folder: Path, identities: int) -> None:
    asyncio.run(_copy(access, folder, identities))


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--identities", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--members", type=int, default=1)
    args = parser.parse_args()
    for identities in args.identities:
        with tempfile.TemporaryDirectory(prefix="new-copy-") as made:
            folder = Path(made)
            async with CassandraNodes(folder / "cassandra", args.members) as nodes:
                access = CassandraAccess(
                    hosts=[(address, nodes.port) for address in nodes.addresses],
                    datacenter="datacenter1",
                    keyspace="copy",
                    replication=args.members,
                )
                await fill(access, identities)
                # A process of its own: its memory is that of a node, without what filling took.
                copying = get_context("spawn").Process(
                    target=_copy_alone, args=(access, folder, identities)
                )
                copying.start()
                await asyncio.to_thread(copying.join)
                if copying.exitcode:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
