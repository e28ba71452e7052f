"""Named moments at which a node can be made to die as if by kill -9, or to freeze, for tests.

    ISTHMUS_CRASH_AT=packer.logged:3:/tmp/once    dies at the third pass, once
    ISTHMUS_FREEZE_AT=packer.logged:3:/tmp/once   freezes there, until it gets a SIGCONT

The file `/tmp/once` is made first: the test learns from the file that the moment was reached, and a
process started again with the same environment lives. Without the variable a moment costs one empty
call. The writer of ledger files (`relay.ledger.file`) has moments of its own, at which the writer
dies and its node lives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

VARIABLE = "ISTHMUS_CRASH_AT"
FREEZE = "ISTHMUS_FREEZE_AT"
POINTS = {
    "packer.marked": "an incarnation's mark is in the log, and none of its batches",
    "packer.appending": "a batch was handed to the log, which has not confirmed it",
    "packer.piece": "amid the pieces of a big message",
    "packer.logged": "the log has confirmed a batch, which is recorded nowhere yet",
    "packer.recorded": "the confirmed batch is recorded, and not acknowledged to egress",
    "packer.acknowledged": "the acknowledgement to egress was sent just now",
    "link.sent": "a frame was handed to the connection to the receiver",
    "link.heard": "the receiver has all up to a position that is not saved yet",
    "link.kept": "a new position is saved, perhaps not on the disk",
    "link.appending": "a batch from a link was handed to the log, which has not confirmed it",
    "link.piece": "amid the pieces of a big message that comes over a link",
    "link.appended": "the log has confirmed a batch from a link, and nobody knows",
    "link.answered": "a frame was handed to the connection to the sender",
    "delivery.judged": "the barrier has judged messages new, and nothing was announced",
    "delivery.announced": "the announcement of messages is on the disk, and none was published",
    "delivery.sent": "messages were handed to the local broker, which has not answered",
    "delivery.confirmed": "the local broker has confirmed messages, and nothing is committed",
    "delivery.committed": "messages are committed, perhaps not on the disk",
    "export.noted": "the list of a file's rows is on the disk, and nothing of the file",
    "export.handed-over": "some of a file's rows were handed to its writer",
    "export.written": "the file has its name, and its rows are still in the store",
    "export.removed": "the rows of a file were taken out of the store just now",
    "turn.claimed": "the slot's entry is this node's, and the slot is still its former owner's",
    "turn.raised": "the slot's epoch is this node's, and the journal is not read to its end",
    "turn.begun": "the epoch has begun, and nothing of the node runs",
    "journal.writing": "a row is about to be sent to the journal",
    "journal.written": "a row is in the journal, and nobody has looked whose the slot is since",
    "content.stored": "the content of a batch is in the content store, and its batch not logged",
    "snapshot.writing": "a part of a snapshot is about to be written",
    "snapshot.complete": "a snapshot is complete, and what it replaces is there",
    "snapshot.forgot": "what a snapshot has replaced is deleted",
    "snapshot.reading": "a new copy has what it replays, and not all parts of the snapshot",
    "move.piece": "a part of a state that moves into a cluster is in the journal",
    "move.in": "a state is in the journal, and nobody may use it yet",
    "move.given": "a slot of a state that moved in may be a node's, and perhaps not the next one",
    "move.out": "a state has come out of the journal, and is not in its place",
    "move.arrived": "a state is in its place, and the journal has not been given up",
    "recover.rebuilt": "a state is rebuilt from its log, and the journal's is as it was found",
    "recover.written": "a rebuilt state is in a new journal, and nobody may use it yet",
    "reslot.begun": "a change of slots is noted, and nothing is changed",
    "reslot.ended": "the former states' ledger rows are in files, and no new state is begun",
    "reslot.carried": "the new states have the memory of deliveries, and nothing else",
    "reslot.built": "the new states are built beside the former ones",
    "reslot.placing": "a former state is deleted, and the new one not in its place yet",
    "reslot.recorded": "the new states are recorded, and the change is not over",
    "reslot.here": "the new states are in the site's folder, and the cluster knows nothing of them",
    "reslot.shared": "the cluster knows the new slots, and has none of their states",
    "file.begun": "the writer has begun a file, under a temporary name",
    "file.synced": "all of the file is on the disk, under a temporary name",
    "file.named": "the file has its name, and the node does not know",
}


def _pass_by(point: str) -> None:
    """Pass: no moment is armed."""


def _armed(setting: str, number: signal.Signals) -> Callable[[str], None]:
    """Return the function that sends the process a signal at the configured moment. Raises
    ValueError.
    """
    wanted, count, once = setting.split(":", 2)
    if wanted not in POINTS:
        raise ValueError(f"no such moment: {wanted!r}; there are {', '.join(POINTS)}")
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
        os.kill(os.getpid(), number)

    return reach


def _from(environ: Mapping[str, str]) -> Callable[[str], None]:
    for variable, number in ((VARIABLE, signal.SIGKILL), (FREEZE, signal.SIGSTOP)):
        if setting := environ.get(variable):
            return _armed(setting, number)
    return _pass_by


reach = _from(os.environ)
"""Function to call with the name of each moment passed."""
