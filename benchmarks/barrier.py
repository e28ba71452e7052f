"""What the barrier costs a key: judge + commit + write, over the real store, at 256 a batch.

    python -m benchmarks.barrier [--batches N] [--folder DIR]

Prints microseconds a key for each step (medians over the batches), the whole process's CPU a key
(merging in the background included), its memory, and the disk. The row `barrier` of
`benchmarks.compare` is the same measure at several sizes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.usage import disk_bytes, memory_mb
from dedup.barrier import Barrier
from dedup.judgement import Verdict
from dedup.keys import place_prefix, places_of
from dedup.rocksdb_store import RocksdbStore
from isthmus.load import Latencies
from relay.batches.batch import Flow
from relay.ledger.rows import LedgerRow, Stage, pack_contents, pack_offsets
from relay.state import node_state
from relay.state.flow_state import FlowState
from relay.state.node_state import Commit, NodeState, RowRange

KEYS = 256
FLOW = Flow("paris", "orders", 0)
STEPS = ("judge", "commit", "row", "write")


@dataclass(frozen=True, slots=True)
class BarrierCost:
    """`steps`: median microseconds a key. `mean_us`: of all steps, and of all batches."""

    keys: int
    steps: Mapping[str, float]
    mean_us: float
    slowest_ms: float
    """The slowest batch, all its steps together."""
    cpu_us: float
    """Of the whole process a key, merging in the background and the drawing of keys included."""
    took_s: float
    before_mb: float
    memory_mb: float
    """At its most."""
    disk_mb: float


def measure(folder: Path, batches: int) -> BarrierCost:
    """So many batches of new keys into an empty store there."""
    before_mb = memory_mb(os.getpid())
    store = RocksdbStore(folder, node_state.TABLES, point_tables=node_state.POINT_TABLES)
    state = NodeState(store)
    state.begin(bytes(16))
    barrier = Barrier(store, 10**9, meta_table=node_state.STATE)
    # Histograms: lists would grow with the keys, and the memory is what is looked at.
    steps = {step: Latencies() for step in STEPS}
    total_ns = slowest_ns = 0
    now_ms = 1_700_000_000_000
    started, started_cpu = time.perf_counter(), time.process_time()
    for number in range(batches):
        # Random identities: the worst for caches, as UUIDv4 are.
        chance = os.urandom(KEYS * 32)
        identities = [chance[i : i + 16] for i in range(0, KEYS * 16, 16)]
        contents = [chance[i : i + 16] for i in range(KEYS * 16, KEYS * 32, 16)]
        keys = [b"prefix.." + identity for identity in identities]
        times = [now_ms + number] * KEYS
        t0 = time.perf_counter_ns()
        places = places_of(place_prefix(b"paris/orders/%d" % number), 0, KEYS)
        judgement = barrier.judge(FLOW, keys, contents, places)
        t1 = time.perf_counter_ns()
        commit = Commit()
        barrier.commit(judgement, commit.changes)
        commit.flow(FLOW, FlowState())
        t2 = time.perf_counter_ns()
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
        t3 = time.perf_counter_ns()
        state.write(commit)
        t4 = time.perf_counter_ns()
        if judgement.verdicts.count(Verdict.NEW) != KEYS:
            raise SystemExit("the barrier knows a key that is new")
        for step, took_ns in zip(STEPS, (t1 - t0, t2 - t1, t3 - t2, t4 - t3), strict=True):
            steps[step].add([took_ns])
        total_ns += t4 - t0
        slowest_ns = max(slowest_ns, t4 - t0)
        if number % 1000 == 999:
            # As the exporter does once a minute.
            done = Commit()
            done.delete_rows(RowRange(Stage.DELIVERED, 0, number - 200))
            state.write(done)
    cpu, took_s = time.process_time() - started_cpu, time.perf_counter() - started
    count, peak_mb = batches * KEYS, memory_mb(os.getpid(), "VmHWM")
    store.close()
    return BarrierCost(
        keys=count,
        steps={step: took.percentile_ms(50) / KEYS * 1e3 for step, took in steps.items()},
        mean_us=total_ns / count / 1e3,
        slowest_ms=slowest_ns / 1e6,
        cpu_us=cpu / count * 1e6,
        took_s=took_s,
        before_mb=before_mb,
        memory_mb=peak_mb,
        disk_mb=disk_bytes(folder) / 1e6,
    )


def show(cost: BarrierCost) -> None:
    """Print it."""
    for step, us in cost.steps.items():
        print(f"{step:8} {us:6.2f} us a key")
    print(f"{'sum':8} {sum(cost.steps.values()):6.2f} us a key; mean {cost.mean_us:.2f}")
    print(f"slowest batch: {cost.slowest_ms:.1f} ms")
    print(f"CPU in all, background included: {cost.cpu_us:.2f} us a key")
    print(
        f"{cost.keys} keys in {cost.took_s:.1f} s; memory {cost.before_mb:.0f} -> "
        f"{cost.memory_mb:.0f} MB at most; disk {cost.disk_mb:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=4000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.folder is not None:
        show(measure(options.folder, options.batches))
        return
    with tempfile.TemporaryDirectory() as folder:
        show(measure(Path(folder), options.batches))


if __name__ == "__main__":
    main()
