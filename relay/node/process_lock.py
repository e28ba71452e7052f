"""One process a site's folder, from before it says anything there until it has ended.

The store has a lock of its own, which comes too late: a second process would by then have written
where *it* answers and what *its* token is, and nobody could reach the first one any more, which
goes on serving the site.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from dedup.store import StoreLocked

LOCK = "process.lock"
ANNOUNCED = "node.json"


@contextlib.contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Raises StoreLocked, OSError. The lock goes with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked(folder, _holder(folder)) from None
        yield
    finally:
        os.close(descriptor)


def _holder(folder: Path) -> int | None:
    """The process that said last where it answers."""
    try:
        return int(json.loads((folder / ANNOUNCED).read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
