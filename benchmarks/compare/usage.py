"""Resources that processes have used so far, from Linux's /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from isthmus.processes import descendants

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * _TICK_S


def tree_cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time of processes and all their descendants."""
    total = 0.0
    for pid in pids:
        total += cpu_s(pid)
        for child in descendants(pid):
            try:
                total += cpu_s(child.pid)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended just now: its parent has its time
    return total


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory in MiB; VmHWM: the most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def open_files(pid: int) -> int:
    """Files, sockets and pipes that a process holds just now."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def disk_bytes(folder: Path, suffix: str = "") -> int:
    """Return the disk space in blocks of all files in a folder (of a suffix); vanishing files count
    nothing.
    """
    taken = 0
    for at, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(suffix):
                continue
            try:
                taken += os.lstat(os.path.join(at, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return taken
