"""Knowledge of a node about its site's log: the names in the log, and where the last of them stand.

Knowledge is kept beside the log and never instead of the log: whatever is read back is added, and
whatever turns out not to be there is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchKind, BatchName, LoggedBatch, Place, Series
from relay.batches.format import BadBatch, UnknownFormat, read_header
from relay.batches.known_formats import KNOWN
from relay.batches.name_set import NameSet
from relay.log.recent_names import NameMatch, RecentNames
from relay.log.site_log import NOTHING, Record
from relay.log.snapshot import LogLoss, LogMemory, LogSnapshot

logger = logging.getLogger(__name__)

_LOG_ID_BYTES = 16
_MOST_LOSSES = 16
"""Losses remembered apart; older ones are merged, with the earlier place."""


class UnknownRecord(Exception):
    """The log holds a batch of a format that this node does not read: a newer version wrote the
    batch.

    The batch is not damaged, and must be neither quarantined nor passed by. The node has to end.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class LogLag(NamedTuple):
    """Messages and bytes between a place and the log's end."""

    messages: int
    bytes: int


@dataclass(slots=True)
class LogCounts:
    """Counts since the node started."""

    appended_batches: int = 0
    appended_messages: int = 0
    appended_bytes: int = 0
    """Bytes before compression."""
    stored_bytes: int = 0
    """Bytes of the same batches in the log, compressed."""
    already_logged: int = 0
    aliens: int = 0
    copies: int = 0
    out_of_order: int = 0
    bad_records: int = 0
    readers_sent_back: int = 0
    connections: int = 0
    tails_lost: int = 0
    names_lost: int = 0
    rebuilds: int = 0


class LogKnowledge:
    """The logged set, the names logged last, and the log's ID; loaded from and saved to
    snapshots.
    """

    def __init__(
        self,
        memory: LogMemory,
        *,
        origin: str,
        random_bytes: Callable[[int], bytes],
        on_bad_record: Callable[[int, bytes, str], None],
        on_superseded: Callable[[BatchHeader], None],
        newest_format: int = KNOWN.newest_batch,
    ) -> None:
        self.newest_format = newest_format
        """Newest format of batches to read: a newer one raises UnknownRecord."""
        self.logged = NameSet()
        self.recent = RecentNames()
        self.log_id = b""
        self.counts = LogCounts()
        self.first = 0
        """Offset of the log's first record at the last look: only for measuring lag."""
        self.checked: Place | None = None
        """Last checked place in a saved snapshot: positions may be stored up to here."""
        self.losses: list[LogLoss] = []
        self._memory = memory
        self._origin = origin
        self._random_bytes = random_bytes
        self._on_bad_record = on_bad_record
        self._on_superseded = on_superseded
        self._last_seen: dict[tuple[str, bytes], int] = {}
        self._changed = False
        self._own_marks: set[bytes] = set()
        self._latest_mark: BatchName | None = None
        self._mark_is_logged = False

    # Input

    def submitted(self, header: BatchHeader) -> None:
        """Note that this node hands a batch to the log."""
        name = header.name
        self.recent.submitted(name, header.entry_count, header.byte_count)
        if header.kind is BatchKind.MARK and name.series.origin == self._origin:
            self._own_marks.add(name.series.incarnation)
            self._latest_mark = name
            self._mark_is_logged = False

    def confirmed(self, header: BatchHeader) -> Place:
        """Note that a submitted batch was confirmed; return a place at or before the batch."""
        name = header.name
        self.logged.add(name)
        self._see(name.series, header.last_published_ms)
        self.counts.appended_messages += header.entry_count
        self.counts.appended_bytes += header.byte_count
        return Place(self.recent.confirmed(name), name)

    def read_back(
        self, records: Iterable[Record], data_of: Callable[[BatchName], bytes | None]
    ) -> bool:
        """Take in records read from the log; return True if all awaited batches came in their
        order, with no other before or between. `data_of`: the bytes that this node appended under a
        name.

        Raises UnknownRecord, having taken in the records before.
        """
        recent = self.recent
        orderly = True
        for record in records:
            name = recent.next_awaited
            if name is not None and data_of(name) == record.data:
                # Byte for byte what was appended: no need to open its header.
                self.logged.add(name)
                recent.read_back(name, record.offset, 0, 0, known=True)
                self._mark_is_logged |= name == self._latest_mark
                self._changed = True
                continue
            batch = self.decode(record)
            if batch is not None:
                finding = self.note(batch.place, batch.header)
                if finding is NameMatch.OUT_OF_ORDER or (
                    finding is NameMatch.ALIEN and recent.next_awaited is not None
                ):
                    orderly = False
        return orderly

    def note(self, place: Place, header: BatchHeader) -> NameMatch:
        """Note that the log has this batch at this place."""
        name = place.name
        finding = self.recent.read_back(
            name,
            place.offset,
            header.entry_count,
            header.byte_count,
            known=name in self.logged,
        )
        if finding is NameMatch.COPY:
            self.counts.copies += 1
            return finding
        self._changed = True
        self.logged.add(name)
        self._see(name.series, header.last_published_ms)
        self._mark_is_logged |= name == self._latest_mark
        if finding is NameMatch.OUT_OF_ORDER:
            self.counts.out_of_order += 1
        elif finding is NameMatch.ALIEN:
            self.counts.aliens += 1
            if (
                header.kind is BatchKind.MARK
                and name.series.origin == self._origin
                and name.series.incarnation not in self._own_marks
                and self._mark_is_logged
            ):
                self._on_superseded(header)
        return finding

    def decode(self, record: Record) -> LoggedBatch | None:
        """Return the record's batch, or None if there is none. A record that is no batch is
        reported for quarantine, unless it is empty. Raises UnknownRecord.
        """
        if record.data == NOTHING and not record.flaw:
            return None
        batch = decode_record(record, self.newest_format)
        if isinstance(batch, LoggedBatch):
            return batch
        self.counts.bad_records += 1
        self._on_bad_record(record.offset, record.data, batch)
        return None

    # Losses and forgetting

    def lose(
        self, lost: Collection[BatchName], last: Place | None, moved: Iterable[BatchName] = ()
    ) -> None:
        """Note that `lost` names are not in the log any more, and that all up to `last` is where it
        was. Names in `moved` stand elsewhere than before: positions at them are no longer valid
        either.
        """
        names = NameSet()
        for name in lost:
            names.add(name)
            self.logged.discard(name)
        for name in moved:
            names.add(name)
        if names:
            self._remember_loss(LogLoss(last, names))
            self._changed = True
        if lost:
            self.log_id = self._random_bytes(_LOG_ID_BYTES)
            self.counts.tails_lost += 1
            self.counts.names_lost += len(lost)
            logger.warning("the log lost %d batches after %s", len(lost), last and last.name)

    def begin_anew(self) -> None:
        """Forget all knowledge of the log: the records read from now on are all that it has."""
        if self.log_id:
            self.counts.rebuilds += 1
            logger.warning("the log was made anew: nothing that was logged last is in it")
            # Includes earlier losses: a stored position may be from before, and another connection
            # may have found the log empty since.
            for _, names in self.losses:
                self.logged.merge(names)
            self.losses = [LogLoss(None, self.logged)]
        self.recent.clear()
        self.logged = NameSet()
        self._last_seen.clear()
        self.log_id = self._random_bytes(_LOG_ID_BYTES)
        self._changed = True

    def begin_behind_eaten(self) -> None:
        """Note that the log had all that was known, and now begins behind."""
        logger.warning("retention has eaten all that was remembered of the log")
        self.recent.clear()
        self._changed = True

    @property
    def has_former_names(self) -> bool:
        """True if names are known that were never in this log: they are of former logs, whose
        batches have come to this log's slot.
        """
        awaited = sum(name in self.logged for name in self.recent.awaited())
        return self.recent.checked is None and len(self.logged) > awaited

    def begin_behind_former(self) -> None:
        """Note that this log goes on where former logs ended, and has none of their names."""
        awaited = [name for name in self.recent.take_awaited() if name in self.logged]
        self.lose(awaited, None)  # noted again if they are read
        self.recent.clear()
        self._changed = True

    def forget_before(self, time_ms: int) -> int:
        """Forget the names of incarnations with nothing logged since `time_ms`, except each
        origin's latest: they ended before the window. Return the number of forgotten incarnations.
        """
        latest: dict[str, int] = {}
        for (origin, _), last_ms in self._last_seen.items():
            latest[origin] = max(last_ms, latest.get(origin, 0))
        gone = {
            key
            for key, last_ms in self._last_seen.items()
            if last_ms < time_ms and last_ms < latest[key[0]]
        }
        if gone:
            for names in (self.logged, *(loss.names for loss in self.losses)):
                names.forget(lambda series: (series.origin, series.incarnation) in gone)
            self.losses = [loss for loss in self.losses if loss.names]
            for key in gone:
                del self._last_seen[key]
            self._changed = True
        return len(gone)

    # Queries

    def safe_position(self, place: Place | None) -> Place | None:
        """See `LogWriter.safe_position`."""
        place = self.before_losses(place)
        if place is None or self.checked is None:
            return None
        if self.recent.is_awaited(place.name):
            return self.checked
        seen = self.recent.find(place.name)
        exact = place
        if seen is not None and seen.offset > place.offset:  # lower: it stands at a later copy
            exact = Place(seen.offset, place.name)
        return min(exact, self.checked, key=lambda p: p.offset)

    def before_losses(self, place: Place | None) -> Place | None:
        """Place at which to go on for a stage that has done everything up to `place`, perhaps
        before the log lost that: `place` itself, or the last place that the log has kept ever
        since.
        """
        candidates = [place]
        for candidate in candidates:
            if candidate is not None:
                candidates += [
                    last
                    for last, names in self.losses
                    if candidate.name in names and last not in candidates
                ]
        # Not `place` itself if it was lost: its offset is from before, and may be a lower bound.
        kept = candidates[1:] or candidates
        return min(kept, key=lambda c: -1 if c is None else c.offset)

    def is_after(self, place: Place, other: Place | None) -> bool:
        """True if `place` comes after `other`, a checked place (None: before everything)."""
        if other is None or self.recent.is_awaited(place.name):
            return True
        seen = self.recent.find(place.name)
        return (place.offset if seen is None else seen.offset) > other.offset

    def lag(self, place: Place | None) -> LogLag:
        """See `LogWriter.lag`."""
        return LogLag(*self.recent.lag(place, self.first))

    # The snapshot

    def load(self) -> None:
        """Load the saved snapshot; begin with nothing if it cannot be read."""
        data = self._memory.load()
        if data is None:
            return
        try:
            snapshot = LogSnapshot.decode(data)
            self.recent.load(snapshot.blocks, snapshot.points)
        except ValueError as error:
            logger.error("the log's snapshot cannot be read, it is built again: %s", error)
            self.recent.clear()
            return
        self.logged = snapshot.logged
        self.log_id = snapshot.log_id
        self._last_seen = dict(snapshot.last_seen)
        self.losses = list(snapshot.losses)
        self.checked = self.recent.checked

    @property
    def is_unsaved(self) -> bool:
        """True if anything has changed since the snapshot was saved."""
        return self._changed

    def save(self) -> None:
        """Save if anything has changed."""
        if not self._changed:
            return
        logged = self.logged
        awaited = self.recent.awaited()
        if awaited:
            logged = logged.copy()
            for name in awaited:
                logged.discard(name)
        snapshot = LogSnapshot(
            self.log_id,
            logged,
            self.recent.encoded_blocks(),
            self.recent.points,
            self._last_seen,
            self.losses,
        )
        self._memory.save(snapshot.encode())
        self.checked = self.recent.checked
        self._changed = False

    def _remember_loss(self, loss: LogLoss) -> None:
        self.losses.append(loss)
        if len(self.losses) > _MOST_LOSSES:
            (first, names), (second, more), *others = self.losses
            names.merge(more)
            last = None
            if first is not None and second is not None:
                last = min(first, second, key=lambda place: place.offset)
            self.losses = [LogLoss(last, names), *others]

    def _see(self, series: Series, last_published_ms: int) -> None:
        key = (series.origin, series.incarnation)
        if last_published_ms > self._last_seen.get(key, -1):
            self._last_seen[key] = last_published_ms


def decode_record(record: Record, newest_format: int) -> LoggedBatch | str:
    """Return the record's batch, or the reason why there is none. Raises UnknownRecord."""
    if record.flaw:
        return record.flaw
    try:
        header = read_header(record.data, newest_format)
    except UnknownFormat as error:
        raise UnknownRecord(record.offset, error.reason) from error
    except BadBatch as error:
        return error.reason
    return LoggedBatch(Place(record.offset, header.name), header, record.data)
