"""Checks what the log has at every new connection.

Before anything else, the names logged last are looked for in order. Usually the last checked place
is there and only what follows is read. Otherwise the log has lost its tail: the last remembered
name that is there is the end, and later names leave the logged set. If none is there, the log was
made anew: all of it is read, and its batches are the logged set; unless the log begins behind all
that is remembered: then retention has eaten those batches, and no position before the log's begin
holds. A log of which names are known but no place is a new one, which goes on where earlier logs of
its batches ended.

A replicated log that looks empty is made to confirm an empty record: then it shows all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from relay.batches.batch import BatchName, LoggedBatch, Place
from relay.log.knowledge import LogKnowledge, decode_record
from relay.log.site_log import NOTHING, UNCONFIRMED_S, LogClosed, LogCursor, SiteLog

logger = logging.getLogger(__name__)

READ_AHEAD = 8

DataOf = Callable[[BatchName], bytes | None]


class Checked(NamedTuple):
    """Result of a check; `cursor` stands behind all that was read, so no later record is missed.

    `disorder_after`: the log has another order than this node thought, from here on (or None).
    `lost`: names that were logged and are not there, `last` the place before them. `anew`: nothing
    known is there. `copies`: batches came that the log has already, which leave no trace; so the
    last known place need not be the end of the log.
    """

    cursor: LogCursor
    disorder_after: Place | None = None
    lost: frozenset[BatchName] = frozenset()
    last: Place | None = None
    anew: bool = False
    copies: bool = False


async def check_log(log: SiteLog, knowledge: LogKnowledge, data_of: DataOf) -> Checked:
    """Check the log at a new connection and correct `knowledge`; see the module.

    Raises the log's errors: check again on a new connection. Raises UnknownRecord where only
    another version of this program can go on.
    """
    before = knowledge.counts.copies
    checked = await _check(log, knowledge, data_of)
    return checked._replace(copies=knowledge.counts.copies > before)


async def _check(log: SiteLog, knowledge: LogKnowledge, data_of: DataOf) -> Checked:
    base, oldest = knowledge.recent.checked, knowledge.recent.oldest
    first, end = await log.first(), await log.end()
    if end is None and log.is_replicated:
        await _append_nothing(log)
        first, end = await log.first(), await log.end()
    knowledge.first = first or 0
    if base is not None and oldest is not None and first is not None and end is not None:
        checked = None
        if first <= base.offset <= end:
            checked = await _go_on_from(log, knowledge, data_of, base, end)
        if checked is None and oldest.offset <= end:
            checked = await _find_what_is_left(log, knowledge, oldest, first, end)
        if checked is not None:
            return checked
    keeps_names = True
    if base is None and knowledge.has_former_names:
        knowledge.begin_behind_former()
    elif (
        base is not None
        and first is not None
        and first > base.offset
        and not knowledge.recent.awaited()
    ):
        knowledge.begin_behind_eaten()
    else:
        keeps_names = False
        knowledge.begin_anew()
    cursor = await log.read(0, heads=True)
    met: set[BatchName] = set()
    if end is not None:
        async for batch in _batches_up_to(cursor, end, knowledge):
            if keeps_names and batch.place.name not in met:
                met.add(batch.place.name)
                knowledge.logged.discard(batch.place.name)  # else `note` takes it for a copy
            knowledge.note(batch.place, batch.header)
    return Checked(cursor, anew=not keeps_names)


async def _append_nothing(log: SiteLog) -> None:
    try:
        async with asyncio.timeout(UNCONFIRMED_S):
            await log.append([NOTHING])
    except TimeoutError:
        raise LogClosed(f"no majority confirmed a record for {UNCONFIRMED_S:g} s") from None


async def _go_on_from(
    log: SiteLog, knowledge: LogKnowledge, data_of: DataOf, base: Place, end: int
) -> Checked | None:
    cursor = await log.read(base.offset, heads=True)
    records = await cursor.next(READ_AHEAD)
    there = decode_record(records[0], knowledge.newest_format)
    if not isinstance(there, LoggedBatch) or there.place != base:
        await cursor.close()
        return None
    orderly = knowledge.read_back(records[1:], data_of)
    while records[-1].offset < end:
        records = await cursor.next(READ_AHEAD)
        orderly = knowledge.read_back(records, data_of) and orderly
    # With a stranger's batch after `base`, readers have everything only up to `base`.
    last = knowledge.recent.checked if orderly else base
    lost = frozenset(knowledge.recent.take_awaited())
    knowledge.lose(lost, last)
    return Checked(cursor, None if orderly else base, lost, last)


async def _find_what_is_left(
    log: SiteLog, knowledge: LogKnowledge, oldest: Place, first: int, end: int
) -> Checked | None:
    recent = knowledge.recent
    # Names that retention has eaten at the head are not lost, only old.
    known = [seen.name for seen in recent if seen.offset >= first]
    known += [name for name in recent.awaited() if name in knowledge.logged]
    found: list[LoggedBatch] = []
    cursor = await log.read(oldest.offset, heads=True)
    async for batch in _batches_up_to(cursor, end, knowledge):
        found.append(batch._replace(data=b""))
    kept = 0
    while kept < min(len(known), len(found)) and found[kept].place.name == known[kept]:
        kept += 1
    if not kept:
        await cursor.close()
        return None
    # Readers beyond `last` may have missed batches that stand there now.
    last = found[kept - 1].place
    there = {batch.place.name for batch in found}
    recent.clear(from_offset=found[0].place.offset)
    lost = frozenset(known) - there
    knowledge.lose(lost, last, moved=[name for name in known[kept:] if name in there])
    for name in there:
        knowledge.logged.discard(name)  # noted again below, where they stand now
    for batch in found:
        knowledge.note(batch.place, batch.header)
    return Checked(cursor, last, lost, last)


async def _batches_up_to(
    cursor: LogCursor, end: int, knowledge: LogKnowledge
) -> AsyncIterator[LoggedBatch]:
    offset = -1
    while offset < end:
        records = await cursor.next(READ_AHEAD)
        offset = records[-1].offset
        for record in records:
            batch = knowledge.decode(record)
            if batch is not None:
                yield batch
