"""The gaps at which stages of one site stand, and what a person has said of them.

SITES/SITE/gaps.json           {"format": 1, "gaps": [...]}      the node writes it
SITES/SITE/accepted-gaps/ID    {"by": "ann@host", "at": "..."}   a command writes it: go on without

The second is an order for exactly the gap of that ID, not for one that has become larger meanwhile.
The node obeys within seconds, or when it starts, and deletes it when what it says is in the ledger,
on the disk: after a power cut before that the stage stands there again, and the order holds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from federation import durable_file
from relay import ticks
from relay.log.open_gap import Accepted, OpenGap, read_gaps, write_gaps

log = logging.getLogger(__name__)

GAPS_FILE = "gaps.json"
ORDERS = "accepted-gaps"
LOOK_EVERY_S = 2.0


class SiteGaps:
    """One site's. `load` before the stages begin."""

    def __init__(self, folder: Path, every_s: float = LOOK_EVERY_S) -> None:
        self._file = folder / GAPS_FILE
        self._orders = folder / ORDERS
        self._every_s = every_s
        self._open: dict[str, OpenGap] = {}
        self._former: dict[str, OpenGap] = {}
        """Of the run before, until their stages have come to them again, or have not."""
        self._obeyed: set[str] = set()
        """IDs of gaps that were passed; the orders stay until that is on the disk."""

    @property
    def open(self) -> list[OpenGap]:
        """Those that stages have come to in this run."""
        return list(self._open.values())

    def load(self) -> None:
        """What stood when the node ended: not known to stand now, but it may have been accepted
        since.
        """
        self._open = {}
        self._former = {gap.key: gap for gap in read_open_gaps(self._file.parent)}

    def begun(self) -> None:
        """All that was said meanwhile was asked for: what does not come up again is over."""
        if self._former and not self._open:
            self._write()

    def found(self, gap: OpenGap) -> None:
        """A stage has stopped there. Of one that it stood at before, the first time is kept."""
        former = self._open.get(gap.key) or self._former.get(gap.key)
        if former is not None and former.after == gap.after:
            gap = replace(gap, since_ms=former.since_ms)
        self._open[gap.key] = gap
        self._write()

    def accepted(self, key: str) -> Accepted | None:
        """What a person has said of the gap of this stage; None: nothing, or there is none."""
        gap = self._open.get(key) or self._former.get(key)
        if gap is None:
            return None
        try:
            said = json.loads((self._orders / gap.id).read_text())
            return Accepted(gap, str(said["by"]), str(said["at"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("%s: %s: say it again", self._orders / gap.id, error)
            return None

    def passed(self, accepted: Accepted) -> None:
        """The stage's position is behind it, and the ledger has the row."""
        gap = accepted.gap
        log.warning("%s goes on behind a gap, accepted by %s", gap.key, accepted.by)
        self._open.pop(gap.key, None)
        self._former.pop(gap.key, None)
        self._write()
        self._obeyed.add(gap.id)

    async def run(
        self, go_on: Callable[[OpenGap], None], synced: Callable[[], Awaitable[None]]
    ) -> None:
        """For ever: call `go_on` for each gap that stands and was accepted. `synced` returns when
        all that was written until its call is on the disk.
        """
        while True:
            await asyncio.sleep(ticks.about(self._every_s, asyncio.get_running_loop().time()))
            for gap in self.open:
                if self.accepted(gap.key) is not None:
                    go_on(gap)
            await self.forget_obeyed(synced)

    async def forget_obeyed(self, synced: Callable[[], Awaitable[None]]) -> None:
        """Delete the orders that were obeyed, once that is on the disk."""
        obeyed = set(self._obeyed)
        if obeyed:
            await synced()
            for gap_id in obeyed:
                (self._orders / gap_id).unlink(missing_ok=True)
            self._obeyed -= obeyed

    def _write(self) -> None:
        try:
            durable_file.write(self._file, write_gaps(self._open.values()))
        except OSError as error:
            # The stage stands all the same, says so, and the ledger has its row.
            log.error("%s: %s", self._file, error)


def read_open_gaps(folder: Path) -> list[OpenGap]:
    """Those of the site of this folder, as its node left word; none if it cannot be read."""
    file = folder / GAPS_FILE
    try:
        return read_gaps(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.error("%s: %s", file, error)
        return []


def accept(folder: Path, gap: OpenGap, by: str, at: str) -> None:
    """Leave the order; on the disk when it returns. Raises OSError."""
    orders = folder / ORDERS
    orders.mkdir(parents=True, exist_ok=True)
    durable_file.write(orders / gap.id, json.dumps({"by": by, "at": at}), durable=True)


def forget_gaps(folder: Path) -> None:
    """The state that came to them is put aside."""
    (folder / GAPS_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / ORDERS, ignore_errors=True)
