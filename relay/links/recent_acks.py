"""What the receiver's log is known to have got lately: whether it still has it is asked first of a
receiver with a new run.

Without it, whoever restarts is offered again all that was acknowledged in the minutes before: by a
hub with three hundred branches, its log's last minutes three hundred times. The receiver's welcome
lists what its log has; as long as nothing of this is missing there, nothing has to be looked for.
"""

from __future__ import annotations

from relay.batches.batch import BatchName
from relay.batches.name_set import BadNameSet, NameSet

MOST_INTERVALS = 512
"""Of names, in either half: about 16 KiB where a position is kept. With more the answer is no."""


class RecentAcks:
    """One link's. Times in seconds of the driver's clock.

    Two halves, each `keep_s` long: a name is forgotten `keep_s` to twice as long after it was
    noted. `kept` is what `encode` gave; without it (an older node's position) nothing is
    known, and `are_in` says no until all that is not known is that old.
    """

    def __init__(self, keep_s: float, kept: bytes = b"") -> None:
        self._keep_s = keep_s
        self._since: float | None = None
        self._newer = NameSet()
        self._older = NameSet()
        self._whole = True
        """Whether the newer half has all that it should; else the older one's are not enough."""
        self._older_whole = False
        self._encoded: bytes | None = None
        if kept:
            try:
                self._older = NameSet.decode(kept)
                self._older_whole = True
            except BadNameSet:
                self._older = NameSet()

    def note(self, name: BatchName, now: float) -> None:
        """The receiver's log has this batch."""
        if self._since is None:
            self._since = now
        elif now >= self._since + self._keep_s:
            self._older, self._older_whole = self._newer, self._whole
            self._newer, self._whole = NameSet(), True
            self._since = now
        if self._whole and self._newer.add(name):
            self._encoded = None
            if self._newer.interval_count() > MOST_INTERVALS:
                self._newer, self._whole = NameSet(), False

    def begin_anew(self) -> None:
        """The link looks again for what the receiver lacks: what it has is noted again."""
        self._older, self._newer = NameSet(), NameSet()
        self._older_whole = self._whole = True
        self._since = None
        self._encoded = None

    def are_in(self, logged: NameSet) -> bool:
        """Whether the receiver's log still has all of them."""
        return (
            self._whole
            and self._older_whole
            and self._newer.is_within(logged)
            and self._older.is_within(logged)
        )

    def encode(self) -> bytes:
        """For a position that is kept; empty if it is not known."""
        if not (self._whole and self._older_whole):
            return b""
        if self._encoded is None:
            names = self._older.copy()
            names.merge(self._newer)
            self._encoded = names.encode()
        return self._encoded
