"""Record of the supervisor for other processes (STATE/supervisor.json), and its lock.

    {"pid": 1, "began": 7, "boot": "...", "file": "/m.yaml", "revision": "...",
      "file_problem": "", "asked": 0, "children": [{"name": "paris", "kind": "node", "pid": 2,
      "began": 8, "state": "running", "restarts": 0, "last_exit": null, "reason": null,
      "since": 1700000000.0}]}

`began` and `boot` tell a process from a later one with the same PID; `since` is seconds since
1970. The file is replaced whole, so that readers see one state, and stays when the supervisor has
ended: see `SupervisorRecord.is_alive`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from federation import durable_file
from isthmus.processes import ProcessMark

RECORD_NAME = "supervisor.json"
LOCK_NAME = "supervisor.lock"


class AlreadySupervisedError(Exception):
    """Another supervisor has the state folder; `pid` is None before its first record."""

    def __init__(self, state: Path, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"{who} already runs the mesh of {state}: look with `isthmus status`, end it with "
            "`isthmus down`, or use another --state"
        )
        self.state = state
        self.pid = pid


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """Present state of one child; `state` is a word of supervision.Phase."""

    name: str
    kind: str
    pid: int | None
    began: int | None
    state: str
    restarts: int
    last_exit: str | None
    reason: str | None
    since: float


@dataclass(frozen=True, slots=True)
class SupervisorRecord:
    """State of a supervisor and its children."""

    pid: int
    began: int
    boot: str
    children: tuple[ChildRecord, ...]
    file: str = ""
    """Mesh file; the taken-up revision follows."""
    revision: str = ""
    file_problem: str = ""
    """Problem of the present file, empty if taken up."""
    asked: int = 0
    """Number of orders to read the file that are done."""

    @property
    def mark(self) -> ProcessMark:
        return ProcessMark(self.pid, self.began, self.boot)

    @property
    def is_alive(self) -> bool:
        """True while the supervisor runs."""
        return self.mark.is_alive

    def child(self, kind: str, name: str) -> ChildRecord | None:
        for child in self.children:
            if (child.kind, child.name) == (kind, name):
                return child
        return None

    def has_node(self, site: str, sites: Collection[str]) -> bool:
        """Return True if a node of the site, one of the mesh's `sites`, is among the children."""
        nodes = {child.name for child in self.children if child.kind == "node"}
        nodes -= set(sites) - {site}  # names of sites have dots too
        return any(name == site or name.startswith(f"{site}.") for name in nodes)

    def child_marks(self) -> tuple[ProcessMark, ...]:
        """Return the processes that ran when the record was written."""
        return tuple(
            ProcessMark(child.pid, child.began, self.boot)
            for child in self.children
            if child.pid is not None and child.began is not None
        )


def read_record(state: Path) -> SupervisorRecord | None:
    """Read the record of the last supervisor, or None."""
    try:
        fields = json.loads((state / RECORD_NAME).read_text())
    except FileNotFoundError:
        return None
    children = tuple(ChildRecord(**child) for child in fields.pop("children"))
    return SupervisorRecord(children=children, **fields)


def write_record(state: Path, record: SupervisorRecord) -> None:
    """Replace the record. Raises OSError."""
    durable_file.write(state / RECORD_NAME, json.dumps(asdict(record), indent=1) + "\n")


class SupervisorLock:
    """Lock of the one supervisor of a state folder; the kernel releases it when the process
    ends.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock. Raises AlreadySupervisedError."""
        self._state.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._state / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            record = read_record(self._state)
            pid = record.pid if record is not None and record.is_alive else None
            raise AlreadySupervisedError(self._state, pid) from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock, if held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
