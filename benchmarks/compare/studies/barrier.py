"""Barrier with many identities: judge, commit and write over the real store, 256 keys a batch.

Each size has an empty store and a process of its own; no broker takes part.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.study import Findings, Setting, Study, StudyBar
from benchmarks.compare.usage import disk_bytes, memory_mb
from dedup.barrier import Barrier, Verdict
from dedup.keys import place_prefix, places_of
from dedup.rocksdb_store import RocksdbStore
from isthmus.load.sink import Latencies
from relay.batches.batch import Flow
from relay.batches.time_offsets import pack_offsets
from relay.ledger.rows import LedgerRow, Stage, pack_contents
from relay.state import node_state
from relay.state.flow_state import FlowState
from relay.state.node_state import Commit, NodeState, RowRange

KEYS = 256
FLOW = Flow("paris", "orders", 0)
STEPS = ("judge", "commit", "row", "write")
_BYTES_A_KEY = 160
"""Disk while files are merged, roughly: more than what stays."""


@dataclass(frozen=True, slots=True)
class BarrierCost:
    """Cost of a key: `steps` has medians, `mean_us` the mean over all steps and batches."""

    keys: int
    steps: Mapping[str, float]
    mean_us: float
    slowest_ms: float
    """The slowest batch, all its steps together."""
    cpu_us: float
    """CPU of the whole process a key, with background merging and the drawing of keys."""
    took_s: float
    memory_mb: float
    """Peak memory."""
    disk_mb: float


def measure(folder: Path, batches: int) -> BarrierCost:
    """Judge, commit and write so many batches of new keys in an empty store."""
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
        memory_mb=peak_mb,
        disk_mb=disk_bytes(folder) / 1e6,
    )


def _name(keys: int) -> str:
    power = len(str(keys)) - 1
    return f"10^{power}" if keys == 10**power else f"{keys:,}"


async def _measure(setting: Setting) -> Findings:
    found = Findings()
    for keys in setting.amounts:
        name = _name(keys)
        if shutil.disk_usage(setting.folder).free < keys * _BYTES_A_KEY:
            setting.say(f"  {name}: left out: less than {_BYTES_A_KEY} B of disk a key")
            continue
        cost = await asyncio.to_thread(_in_a_process, setting.folder / str(keys), keys // KEYS)
        found.table[name] = {
            "us": sum(cost.steps.values()),
            "mean_us": cost.mean_us,
            "cpu_us": cost.cpu_us,
            "slowest_ms": cost.slowest_ms,
            "memory_mb": cost.memory_mb,
            "disk_mb": cost.disk_mb,
            "disk_bytes": cost.disk_mb * 1e6 / cost.keys,
        }
        found.reached[f"{name}: us a key"] = cost.mean_us
        setting.say(
            f"  {name}: {cost.mean_us:.2f} us a key, at most {cost.memory_mb:.0f} MB, disk "
            f"{cost.disk_mb:,.0f} MB, {cost.took_s:,.0f} s"
        )
    names = list(found.table)
    if len(names) > 1:
        first, last = (found.table[names[which]]["memory_mb"] for which in (0, -1))
        found.reached["memory: the most keys over the fewest"] = last / first
    return found


def _in_a_process(folder: Path, batches: int) -> BarrierCost:
    """Measure in a process with memory of its own; delete the folder afterwards."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        cost = pool.apply(measure, (folder, batches))
    shutil.rmtree(folder)
    return cost


STUDY = Study(
    "barrier",
    "the barrier with many identities: what a key costs, new ones only, 256 a batch",
    "identities",
    (10**6, 10**7, 10**8),
    _measure,
    {
        "us": "us a key, median",
        "mean_us": "us a key, mean",
        "cpu_us": "CPU us a key, merging included",
        "slowest_ms": "slowest batch ms",
        "memory_mb": "memory MB at most",
        "disk_mb": "disk MB",
        "disk_bytes": "bytes a key",
    },
    ("mean_us", "memory_mb"),
    (
        *(StudyBar(f"{_name(keys)}: us a key", 3.0) for keys in (10**6, 10**7, 10**8)),
        StudyBar("memory: the most keys over the fewest", 1.2),
    ),
    quick=(10**6,),
)
