"""Named moments at which a node dies, as kill -9 would have it: for tests, from the environment.

    ISTHMUS_CRASH_AT=packer.logged:3:/tmp/once    the third time that it comes by, once

The file is made first, so that whatever begins again with the same environment lives, and so that
the test knows that the moment was reached. Without the variable a moment costs a call that does
nothing. The writer of ledger files (`relay.ledger.file`) has moments of its own: it dies, and its
node lives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "ISTHMUS_CRASH_AT"
POINTS = {
    "packer.marked": "a run's mark is in the log, and nothing of the run",
    "packer.appending": "a batch was handed to the log, which has not confirmed it",
    "packer.piece": "amid the pieces of a big message",
    "packer.logged": "the log has confirmed a batch, and nothing says so yet",
    "packer.recorded": "the record says so, and egress has no acknowledgement",
    "packer.acknowledged": "egress was sent its acknowledgement just now",
    "link.sent": "a frame to the receiver was handed to the line",
    "link.heard": "the receiver has all up to a position that is not kept yet",
    "link.kept": "that position is kept, perhaps not on the disk",
    "link.appending": "what came over a link was handed to the log, which has not confirmed it",
    "link.piece": "amid the pieces of a big message that comes over a link",
    "link.appended": "the log has confirmed what came over a link, and nobody knows",
    "link.answered": "a frame to the sender was handed to the line",
    "delivery.judged": "the barrier has said what is new, and nothing was announced",
    "delivery.announced": "what is about to be published is on the disk, and nothing was published",
    "delivery.sent": "it was handed to the local broker, which has not answered",
    "delivery.confirmed": "the local broker has confirmed it, and nothing is committed",
    "delivery.committed": "it is committed, perhaps not on the disk",
    "export.noted": "which rows become a file is on the disk, and nothing of the file",
    "export.handed-over": "some of a file's rows were handed to its writer",
    "export.written": "the file has its name, and its rows are still in the store",
    "export.removed": "its rows were taken out of the store just now",
    "file.begun": "the writer has begun a file, under a temporary name",
    "file.synced": "all of the file is on the disk, under a temporary name",
    "file.named": "the file has its name, and the node does not know",
}


def _nothing(point: str) -> None:
    """No test has asked for anything."""


def _armed(said: str) -> Callable[[str], None]:
    """What ends the process. Raises ValueError."""
    wanted, count, once = said.split(":", 2)
    if wanted not in POINTS:
        raise ValueError(f"{VARIABLE}: no such moment: {wanted!r}; there are {', '.join(POINTS)}")
    left = int(count)

    def reach(point: str) -> None:
        nonlocal left
        if point != wanted or left <= 0:
            return
        left -= 1
        if left:
            return
        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    return reach


_said = os.environ.get(VARIABLE)
reach = _armed(_said) if _said else _nothing
"""Call with the name of the moment that has come."""
