"""Gaps at which stages of one site stand, and a person's orders about them.

SITES/SITE/gaps.json           {"format": 1, "gaps": [...]}      written by the node
SITES/SITE/accepted-gaps/ID    {"by": "ann@host", "at": "..."}   order of a command: skip the gap

An order is for exactly the gap of its ID, not for one that has become larger meanwhile. The node
obeys within seconds, or when it starts. An order is deleted once its ledger row is on the disk:
after a power cut before then, the stage stands at the gap again and the order still holds.
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
    """Gaps of one site. `load` before the stages begin. `wrote` is called after each writing of the
    file.
    """

    def __init__(self, folder: Path, wrote: Callable[[Path], None] = lambda _: None) -> None:
        self._wrote = wrote
        self._file = folder / GAPS_FILE
        self._orders = folder / ORDERS
        self._open: dict[str, OpenGap] = {}
        self._former: dict[str, OpenGap] = {}
        """Gaps of the run before, until their stages have met them again, or have passed."""
        self._obeyed: set[str] = set()
        """IDs of gaps that were passed; the orders stay until the passing is on the disk."""

    @property
    def open(self) -> list[OpenGap]:
        """Gaps that stages have met in this run."""
        return list(self._open.values())

    def load(self) -> None:
        """Load the gaps that were open when the node ended; they may be over, or accepted since."""
        self._open = {}
        self._former = {gap.key: gap for gap in read_open_gaps(self._file.parent)}

    def begun(self) -> None:
        """Forget gaps of the former run that no stage has met again: all orders were applied by
        now.
        """
        if self._former and not self._open:
            self._write()

    def found(self, gap: OpenGap) -> None:
        """Keep a gap at which a stage has stopped. A gap met before keeps its first time."""
        former = self._open.get(gap.key) or self._former.get(gap.key)
        if former is not None and former.after == gap.after:
            gap = replace(gap, since_ms=former.since_ms)
        self._open[gap.key] = gap
        self._write()

    def accepted(self, key: str) -> Accepted | None:
        """Order of a person about the gap of this stage, or None if there is no gap or no order."""
        gap = self._open.get(key) or self._former.get(key)
        if gap is None:
            return None
        try:
            order = json.loads((self._orders / gap.id).read_text())
            return Accepted(gap, str(order["by"]), str(order["at"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error(
                "%s: %s: say it again",
                self._orders / gap.id,
                error,
                extra={"event": "gap-order-unreadable"},
            )
            return None

    def passed(self, accepted: Accepted) -> None:
        """Drop a gap: the stage's position is behind it, and the ledger has the row."""
        gap = accepted.gap
        log.warning(
            "%s goes on behind a gap, accepted by %s",
            gap.key,
            accepted.by,
            extra={"event": "gap-accepted"},
        )
        self._open.pop(gap.key, None)
        self._former.pop(gap.key, None)
        self._write()
        self._obeyed.add(gap.id)

    async def run(
        self, go_on: Callable[[OpenGap], None], synced: Callable[[], Awaitable[None]]
    ) -> None:
        """Call `go_on` for each open gap that was accepted, for ever. `synced` returns once all
        writes until its call are on the disk.
        """
        while True:
            await asyncio.sleep(ticks.about(LOOK_EVERY_S, asyncio.get_running_loop().time()))
            for gap in self.open:
                if self.accepted(gap.key) is not None:
                    go_on(gap)
            await self.forget_obeyed(synced)

    async def forget_obeyed(self, synced: Callable[[], Awaitable[None]]) -> None:
        """Delete the obeyed orders once the passing of their gaps is on the disk."""
        obeyed = set(self._obeyed)
        if obeyed:
            await synced()
            for gap_id in obeyed:
                (self._orders / gap_id).unlink(missing_ok=True)
            self._obeyed -= obeyed

    def _write(self) -> None:
        try:
            durable_file.write(self._file, write_gaps(self._open.values()))
            self._wrote(self._file)
        except OSError as error:
            # The stage stands all the same, reports that, and the ledger has its row.
            log.error("%s: %s", self._file, error, extra={"event": "gaps-not-written"})


def read_open_gaps(folder: Path) -> list[OpenGap]:
    """Gaps that the node of this folder has left; none if the file cannot be read."""
    file = folder / GAPS_FILE
    try:
        return read_gaps(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.error("%s: %s", file, error, extra={"event": "gaps-unreadable"})
        return []


def accept(folder: Path, gap: OpenGap, by: str, at: str) -> None:
    """Leave the order to go on behind the gap; on the disk on return. Raises OSError."""
    orders = folder / ORDERS
    orders.mkdir(parents=True, exist_ok=True)
    durable_file.write(orders / gap.id, json.dumps({"by": by, "at": at}), durable=True)


def forget_gaps(folder: Path) -> None:
    """Forget all gaps and orders, since the state that met the gaps was put aside."""
    (folder / GAPS_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / ORDERS, ignore_errors=True)
