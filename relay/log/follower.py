"""Reads back what was appended, and compares the log's order with what readers got."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from relay.batches.batch import BatchName, Place
from relay.log.check import READ_AHEAD, Checked
from relay.log.hot_tail import HotTail
from relay.log.knowledge import LogKnowledge, UnknownRecord
from relay.log.reader import LogReader
from relay.log.run import LogSettings
from relay.log.site_log import LogClosed, LogCursor
from relay.waiters import Waiters, set_within

logger = logging.getLogger(__name__)


class LogFollower:
    """Reads back what was appended; sends readers back where the log differs from what they got.

    `readers` is the writer's own set; `data_of` finds a batch on its way or hot; `hurry` is set
    where much waits to be read back, or somebody waits for `saved`, which wakes when all that was
    confirmed until a moment ago is read back and in the snapshot.
    """

    def __init__(
        self,
        knowledge: LogKnowledge,
        tail: HotTail,
        readers: Collection[LogReader],
        settings: LogSettings,
        data_of: Callable[[BatchName], bytes | None],
        hurry: asyncio.Event,
        saved: Waiters,
    ) -> None:
        self._knowledge = knowledge
        self._tail = tail
        self._readers = readers
        self._settings = settings
        self._data_of = data_of
        self._hurry = hurry
        self._saved = saved
        self._save_due = 0.0
        self._unsaved = 0
        """Number of records that were read back since the last snapshot."""

    async def follow(self, cursor: LogCursor) -> None:
        """Read back what is appended, in bulk, for ever. At idle a chunk that comes unasked shows a
        stranger's append. Raises LogClosed, LogMissing, UnknownRecord.
        """
        recent, clock = self._knowledge.recent, asyncio.get_running_loop().time
        while True:
            if not self._knowledge.is_unsaved:
                await self._read_back(cursor, 1)
            target = recent.last_unchecked
            while target is not None and recent.is_awaited(target):
                await self._read_back(cursor, min(READ_AHEAD, recent.unchecked_count))
            much = self._unsaved > self._settings.check_after_names
            if much or self._saved or clock() >= self._save_due:
                self._knowledge.save()
                self._saved.wake()
                self._save_due, self._unsaved = clock() + self._settings.check_every_s, 0
            if recent.unchecked_count <= self._settings.read_after_names:
                self._hurry.clear()
            await set_within(max(0.0, self._save_due - clock()), self._hurry)

    async def _read_back(self, cursor: LogCursor, ahead: int) -> None:
        recent = self._knowledge.recent
        while True:
            missing = recent.next_awaited if recent.unchecked_count else None
            try:
                async with asyncio.timeout(self._settings.unreadable_after_s):
                    records = await cursor.next(ahead)
                break
            except TimeoutError:
                if missing is not None and missing == recent.next_awaited:
                    raise LogClosed(f"{missing} cannot be read back") from None
        self._unsaved += len(records)
        before = recent.checked
        aliens = self._knowledge.counts.aliens
        unknown: UnknownRecord | None = None
        try:
            orderly = self._knowledge.read_back(records, self._data_of)
        except UnknownRecord as error:
            orderly, unknown = False, error
        if not orderly or self._knowledge.counts.aliens != aliens:
            logger.warning(
                "the log has what this node did not append, or another order, after %s: "
                "readers go back there",
                before and before.name,
            )
            self._tail.restart(None, anchored=False)
            for reader in self._readers:
                self._send_back(reader, before)
        if unknown is not None:
            raise unknown

    def restart_readers(self, checked: Checked) -> None:
        """Let every reader find its place again in the log as it is after a check."""
        end = self._knowledge.recent.checked
        # After copies, no reader goes over to memory before it has read up to there.
        self._tail.restart(end.name if end else None, anchored=not checked.copies)
        for reader in self._readers:
            place = reader.place
            if place is None or checked.anew:
                reader.rewind(None)
            elif place.name in checked.lost:
                reader.rewind(checked.last)
            elif checked.disorder_after is not None:
                self._send_back(reader, checked.disorder_after)
            else:
                reader.rewind(place)

    def _send_back(self, reader: LogReader, checked: Place | None) -> None:
        place = reader.place
        if place is not None and self._knowledge.is_after(place, checked):
            self._knowledge.counts.readers_sent_back += 1
            place = checked
        reader.rewind(place)
