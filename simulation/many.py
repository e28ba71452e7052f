"""Many worlds, over several processes: each is one process's for as long as it lasts."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from simulation.scenario import Outcome, Scenario, run
from simulation.silence import silence

WORLDS_A_PROCESS = 200


def run_many(scenarios: Sequence[Scenario], jobs: int) -> Iterator[Outcome]:
    """What becomes of each, in order, their traces without lines where there are more `jobs` than
    one. Raises NoSuchMesh.
    """
    if jobs == 1 or len(scenarios) < 2:
        yield from map(run_silently, scenarios)
        return
    # Not forked: a process that has a loop, a terminal and threads is no good to copy.
    context = multiprocessing.get_context("spawn")
    # A world of 30 sites takes 500 MB, and what was freed is not given back: so now and then all
    # processes are new. (max_tasks_per_child waits for ever in Python 3.11: gh-115634.)
    at_once = jobs * WORLDS_A_PROCESS
    for first in range(0, len(scenarios), at_once):
        block = scenarios[first : first + at_once]
        with ProcessPoolExecutor(
            min(jobs, len(block)), context, initializer=_end_with_parent
        ) as pool:
            try:
                yield from pool.map(run_silently, block)
            finally:
                pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Else a parent that is killed leaves its processes busy for hours."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def run_silently(scenario: Scenario) -> Outcome:
    """As `run`, in a process of which nobody reads what nodes say."""
    with silence():
        return run(scenario)
