"""Processes by PID and start time, which tells later processes with the same PID apart (Linux
/proc).
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """Identity of a process: PID, start (ticks since boot) and boot."""

    pid: int
    began: int
    boot: str

    @property
    def is_alive(self) -> bool:
        """True if the very process still runs; a zombie does not."""
        status = _status(self.pid)
        if status is None or status.state in "ZX":
            return False
        return status.began == self.began and self.boot == _boot()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        if not self.is_alive:
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return  # ended between the check and the signal


@dataclass(frozen=True, slots=True)
class _Status:
    state: str
    parent: int
    began: int


def mark(pid: int) -> ProcessMark | None:
    """Return the mark of a process, or None if the PID is unused."""
    status = _status(pid)
    return None if status is None else ProcessMark(pid, status.began, _boot())


def descendants(pid: int) -> tuple[ProcessMark, ...]:
    """Return all present descendants of a process."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (status := _status(int(entry))) is not None:
            children.setdefault(status.parent, []).append((int(entry), status.began))
    boot = _boot()
    found: list[ProcessMark] = []
    ahead = [pid]
    while ahead:
        for child, began in children.get(ahead.pop(), ()):
            found.append(ProcessMark(child, began, boot))
            ahead.append(child)
    return tuple(found)


async def end(marks: Iterable[ProcessMark], *, first: signal.Signals, patience_s: float) -> None:
    """Signal all with `first`, and with SIGKILL after `patience_s`; return when all have ended.

    Raises TimeoutError if a process survives SIGKILL by 10 s (it hangs in the kernel).
    """
    left = [each for each in marks if each.is_alive]
    for each in left:
        # A stopped process would take SIGTERM only once it goes on.
        each.send(first)
        each.send(signal.SIGCONT)
    if await gone(left, patience_s):
        return
    for each in left:
        each.send(signal.SIGKILL)
    if not await gone(left, 10.0):
        alive = [each.pid for each in left if each.is_alive]
        raise TimeoutError(f"processes {alive} did not end on SIGKILL")


async def gone(marks: Iterable[ProcessMark], patience_s: float = math.inf) -> bool:
    """Wait until all have ended; False after `patience_s`."""
    limit = time.monotonic() + patience_s
    while any(each.is_alive for each in marks):
        if time.monotonic() >= limit:
            return False
        await asyncio.sleep(POLL_S)
    return True


def exit_words(exit_code: int) -> str:
    """Return `exit code 1`, or `signal SIGTERM` for a negative number."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-exit_code}"


def _status(pid: int) -> _Status | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may hold spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return _Status(state=fields[0], parent=int(fields[1]), began=int(fields[19]))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
