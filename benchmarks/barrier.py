"""What the barrier costs a key: judge + commit + write, over the real store, at 256 a batch.

    python -m benchmarks.barrier [--batches N] [--folder DIR]

Prints microseconds a key for each step (medians over the batches), the whole process's CPU a key
(merging in the background included) and its memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from dedup.barrier import Barrier
from dedup.judgement import Verdict
from dedup.keys import place_prefix, places_of
from dedup.rocksdb_store import RocksdbStore
from relay.batches.batch import Flow
from relay.delivery.flow import FlowState
from relay.ledger.rows import LedgerRow, Stage, pack_contents, pack_offsets
from relay.state import node_state
from relay.state.node_state import Commit, NodeState, RowRange

KEYS = 256
FLOW = Flow("paris", "orders", 0)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def run(folder: Path, batches: int) -> None:
    before_mb = resident_mb()
    store = RocksdbStore(folder, node_state.TABLES, point_tables=node_state.POINT_TABLES)
    state = NodeState(store)
    state.begin(bytes(16))
    barrier = Barrier(store, 10**9, meta_table=node_state.STATE)
    steps: dict[str, list[float]] = {"judge": [], "commit": [], "row": [], "write": []}
    now_ms = 1_700_000_000_000
    started, started_cpu = time.perf_counter(), time.process_time()
    for number in range(batches):
        # Random identities: the worst for caches, as UUIDv4 are.
        chance = os.urandom(KEYS * 32)
        identities = [chance[i : i + 16] for i in range(0, KEYS * 16, 16)]
        contents = [chance[i : i + 16] for i in range(KEYS * 16, KEYS * 32, 16)]
        keys = [b"prefix.." + identity for identity in identities]
        times = [now_ms + number] * KEYS
        t0 = time.perf_counter()
        places = places_of(place_prefix(b"paris/orders/%d" % number), 0, KEYS)
        judgement = barrier.judge(FLOW, keys, contents, places)
        t1 = time.perf_counter()
        commit = Commit()
        barrier.commit(judgement, commit.changes)
        commit.flow(FLOW, FlowState())
        t2 = time.perf_counter()
        commit.row(
            LedgerRow(
                Stage.DELIVERED,
                now_ms,
                origin="paris",
                exchange="orders",
                path=("paris", "tokyo"),
                count=KEYS,
                identities=b"".join(identities),
                contents=pack_contents(contents),
                outcomes=bytes([1]) * KEYS,
                published=pack_offsets(times, now_ms),
                delivered=pack_offsets(times, now_ms),
            )
        )
        t3 = time.perf_counter()
        state.write(commit)
        t4 = time.perf_counter()
        if judgement.verdicts.count(Verdict.NEW) != KEYS:
            raise SystemExit("the barrier knows a key that is new")
        for step, seconds in zip(steps, (t1 - t0, t2 - t1, t3 - t2, t4 - t3), strict=True):
            steps[step].append(seconds)
        if number % 1000 == 999:
            # As the exporter does once a minute.
            done = Commit()
            done.delete_rows(RowRange(Stage.DELIVERED, 0, number - 200))
            state.write(done)
    cpu = time.process_time() - started_cpu
    wall = time.perf_counter() - started
    each = {step: statistics.median(all_of) / KEYS * 1e6 for step, all_of in steps.items()}
    for step, us in each.items():
        print(f"{step:8} {us:6.2f} us a key (slowest batch {max(steps[step]) * 1e3:.1f} ms)")
    print(f"{'sum':8} {sum(each.values()):6.2f} us a key")
    print(f"CPU in all, background included: {cpu / batches / KEYS * 1e6:.2f} us a key")
    print(
        f"{batches * KEYS} keys in {wall:.1f} s; memory {before_mb:.0f} -> {resident_mb():.0f} MB"
    )
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=4000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.folder is not None:
        run(options.folder, options.batches)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), options.batches)


if __name__ == "__main__":
    main()
