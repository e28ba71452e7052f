"""Roller of the ledger: closed ranges of rows go from the node's store into Parquet files.

    choose a range -> note it in the store, synced -> file written, synced, renamed -> rows deleted

Because the range is noted, a kill at any point is safe: the next node exports *the same* range
again, and the same rows give the same file under the same name. The sync makes a power cut safe: no
file holds a row that the store could still lose (and then number anew).

Files: LEDGER/date=YYYY-MM-DD/STAGE-STATE-FIRST-LAST.parquet, by the UTC date of recording; LAST is
the number of the last row in the file. STATE is the state folder's ID: a folder that was lost and
made anew numbers its rows from 0 again, which must not overwrite its predecessor's files.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from struct import Struct

from relay import crash_points
from relay.ledger.file import LedgerFile, file_frame, frame
from relay.ledger.file_writer import ExportFailed, FileWriter, FileWriters
from relay.ledger.rows import Stage, recorded_ms_of
from relay.state.node_state import Commit, NodeState, RowRange

_NOTE = Struct(">QQQ")
"""First and last (exclusive) row, and when the first was recorded (ms): the date of the file."""
_SLICE = 128
"""Rows read from the store and handed over at a time: 1 MB when all are full."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class RollRule:
    """Limits at which a stage's rows become a file. Small files make slow audits, old rows late
    ones.
    """

    after_s: float = 300.0
    """Age of the oldest row."""
    quiet_after_s: float = 3600.0
    """Age of the oldest of fewer than `quiet_rows`: a quiet site writes its idle rows and little
    else.
    """
    quiet_rows: int = 256
    at_rows: int = 4096
    """Rows of one file at most: 35 MB when all are full."""


def is_due(first: int, next_row: int, first_recorded_ms: int, now_ms: int, rule: RollRule) -> bool:
    """True if rows first..next_row of a stage are to be exported now. A past day is closed at once,
    since its audit waits for it.
    """
    if next_row <= first:
        return False
    after_s = rule.after_s if next_row - first >= rule.quiet_rows else rule.quiet_after_s
    return (
        next_row - first >= rule.at_rows
        or now_ms - first_recorded_ms >= after_s * 1000
        or now_ms // _DAY_MS != first_recorded_ms // _DAY_MS
    )


class LedgerExport:
    """Roller of one site. `folder` is the site's ledger folder."""

    def __init__(
        self,
        state: NodeState,
        site: str,
        folder: Path,
        writers: FileWriters,
        rule: RollRule | None = None,
    ) -> None:
        self._state = state
        self._site = site
        self._folder = folder
        self._writers = writers
        self._rule = rule or RollRule()
        self._busy = asyncio.Lock()

    async def roll(self, now_ms: int, *, everything: bool = False) -> list[Path]:
        """Export what is due, or `everything`; return the files made.

        Raises ExportFailed; earlier files of the call stay. A cancelled call leaves at most a noted
        range, which the next call exports first.
        """
        made: list[Path] = []
        async with self._busy, contextlib.AsyncExitStack() as writing:
            writer: FileWriter | None = None
            for stage in Stage:
                while (file := await self._next_file(stage, now_ms, everything)) is not None:
                    if writer is None:
                        writer = await writing.enter_async_context(self._writers.writing())
                    await self._export(writer, stage, file)
                    made.append(Path(file.path))
        return made

    async def _next_file(self, stage: Stage, now_ms: int, everything: bool) -> LedgerFile | None:
        noted = self._state.get(_note_key(stage))
        if noted is not None:
            return self._file(stage, *_NOTE.unpack(noted))
        head = next(self._state.rows(stage), None)
        if head is None:
            return None
        first, recorded_ms = head[0], recorded_ms_of(head[1])
        next_row = self._state.next_row(stage)
        if not everything and not is_due(first, next_row, recorded_ms, now_ms, self._rule):
            return None
        last = first
        for number, data in islice(self._state.rows(stage, first), self._rule.at_rows):
            if recorded_ms_of(data) // _DAY_MS != recorded_ms // _DAY_MS:
                break
            last = number + 1
        note = Commit()
        note.put(_note_key(stage), _NOTE.pack(first, last, recorded_ms))
        await self._state.write_synced(note)
        crash_points.reach("export.noted")
        return self._file(stage, first, last, recorded_ms)

    def _file(self, stage: Stage, first: int, last: int, recorded_ms: int) -> LedgerFile:
        state = (self._state.get("state_id") or b"").hex()
        date = datetime.fromtimestamp(recorded_ms / 1000, UTC).date().isoformat()
        name = f"{stage.name.lower()}-{state[:8]}-{first:012}-{last - 1:012}.parquet"
        path = self._folder / f"date={date}" / name
        return LedgerFile(str(path), self._site, state, first, last)

    async def _export(self, writer: FileWriter, stage: Stage, file: LedgerFile) -> None:
        await writer.send(file, file_frame(file))
        at = file.first
        while at < file.last:
            rows = [
                data for _, data in islice(self._state.rows(stage, at), min(_SLICE, file.last - at))
            ]
            if not rows:
                raise ExportFailed(file.path, f"row {at} of the noted range is not in the store")
            await writer.send(file, b"".join(map(frame, rows)))
            crash_points.reach("export.handed-over")
            at += len(rows)
        await writer.finished(file)
        crash_points.reach("export.written")
        done = Commit()
        done.delete_rows(RowRange(stage, file.first, file.last))
        done.put(_note_key(stage), None)
        self._state.write(done)
        crash_points.reach("export.removed")


def _note_key(stage: Stage) -> str:
    return f"export.{stage.name.lower()}"
