"""What the supervisor tells others by files: STATE/supervisor.json, and a lock beside it.

{"pid": 1, "began": 7, "boot": "...", "file": "/m.yaml", "revision": "...",
  "file_problem": "", "asked": 0, "children": [{"name": "paris", "kind": "node", "pid": 2,
  "began": 8, "state": "running", "restarts": 0, "last_exit": null, "reason": null,
  "since": 1700000000.0}]}

`began` and `boot` tell a process from a later one with its PID; `since` is seconds since 1970.
The file is replaced whole, so whoever reads it sees one state. It stays when the supervisor has
ended: `SupervisorRecord.is_alive` tells.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from federation import durable_file
from isthmus.processes import ProcessMark

RECORD_NAME = "supervisor.json"
LOCK_NAME = "supervisor.lock"


class AlreadySupervisedError(Exception):
    """Another supervisor, process `pid` (None: it has not said yet), has this state folder."""

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
    """One child as it is now. `state` is a word of supervision.Phase."""

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
    """A supervisor and its children."""

    pid: int
    began: int
    boot: str
    children: tuple[ChildRecord, ...]
    file: str = ""
    """The mesh file that it runs, and the revision of it that it has taken up."""
    revision: str = ""
    file_problem: str = ""
    """Why it has not taken up the file as it is now; empty when it has."""
    asked: int = 0
    """How often it was told to look at the file."""

    @property
    def mark(self) -> ProcessMark:
        """The supervisor's process."""
        return ProcessMark(self.pid, self.began, self.boot)

    @property
    def is_alive(self) -> bool:
        """Whether that supervisor still runs."""
        return self.mark.is_alive

    def child(self, kind: str, name: str) -> ChildRecord | None:
        """The child of that kind and name."""
        for child in self.children:
            if (child.kind, child.name) == (kind, name):
                return child
        return None

    def child_marks(self) -> tuple[ProcessMark, ...]:
        """The processes that were running when this was written."""
        return tuple(
            ProcessMark(child.pid, child.began, self.boot)
            for child in self.children
            if child.pid is not None and child.began is not None
        )


def read_record(state: Path) -> SupervisorRecord | None:
    """What the last supervisor of this state folder wrote, or None if there was none."""
    try:
        fields = json.loads((state / RECORD_NAME).read_text())
    except FileNotFoundError:
        return None
    children = tuple(ChildRecord(**child) for child in fields.pop("children"))
    return SupervisorRecord(children=children, **fields)


def write_record(state: Path, record: SupervisorRecord) -> None:
    """Replaces the record. Raises OSError."""
    durable_file.write(state / RECORD_NAME, json.dumps(asdict(record), indent=1) + "\n")


class SupervisorLock:
    """Held by the one supervisor of a state folder; the kernel lets it go when that ends."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises AlreadySupervisedError."""
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
        """Lets it go; does nothing if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
