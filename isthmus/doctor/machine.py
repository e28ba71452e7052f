"""This machine: disk for the state, open files."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

from isthmus.doctor.finding import Findings

LEAST_FREE_BYTES = 1 << 30
LEAST_FILES = 4096


def examine_machine(state: Path, sites: int, found: Findings) -> None:
    """`sites` is how many nodes may run here."""
    folder = state.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        found.warn(
            "disk",
            f"{folder} has {free / 2**20:.0f} MiB free: state and ledger are kept there",
            "free disk, or keep the state elsewhere with --state",
        )
    else:
        found.ok("disk", f"{folder} has {free / 2**30:.1f} GiB free")
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < LEAST_FILES and sites > 1:
        found.warn(
            "open files",
            f"a process may open {most} files here; a node with many links or tables needs more",
            f"raise it: `ulimit -n {LEAST_FILES}`, or LimitNOFILE in the unit",
        )
