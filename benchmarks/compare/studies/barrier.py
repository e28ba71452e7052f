"""The barrier when it holds many identities: each size in an empty store and a process of its own.

No broker takes part; what is measured is `benchmarks.barrier`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
from pathlib import Path

from benchmarks.barrier import KEYS, BarrierCost, measure
from benchmarks.compare.study import Findings, Setting, Study, StudyBar

_BYTES_A_KEY = 160
"""Of disk while files are merged, roughly: more than what stays."""


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
    """Its memory is its own. The folder goes afterwards."""
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
