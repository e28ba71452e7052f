"""Loop that keeps a packer going: incarnation after incarnation, in the same process.

Each loss of the egress connection or of the log's ends an incarnation; the next begins after a
jittered wait that grows to 30 s while none gets far. A changed mesh ends an incarnation in order,
if the packing changes; then the next begins at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace

from relay.log.site_log import SiteLogError
from relay.packing.egress import EgressError
from relay.packing.packer import Packer
from relay.packing.packer_metrics import PackerMetrics, PackerState, PackerStatus
from relay.packing.packer_parts import IncarnationEnded, PackerMemory, PackerParts
from relay.packing.packer_record import PackedThrough, PackerRecord
from relay.packing.packer_settings import PackerSettings
from relay.packing.requested_parcels import CanaryParcel, NotPacking, RepairParcel
from relay.retry import reconnect_delay_s
from relay.waiters import set_within

logger = logging.getLogger(__name__)

WELL_AFTER_S = 10.0
"""Life of an incarnation after which its end counts as a new failure, with a short wait."""


class PackerLoop:
    """Packer of a site. `run` returns after `stop`; the record is read when `run` begins."""

    def __init__(self, settings: PackerSettings, parts: PackerParts, chance: random.Random) -> None:
        self.metrics = PackerMetrics()
        self.status = PackerStatus()
        self._settings = settings
        self._parts = parts
        self._random = chance.random
        self._stopping = asyncio.Event()
        self._locked = asyncio.Event()
        self._decided = asyncio.Event()
        self._packer: Packer | None = None
        self._memory = PackerMemory(None)

    async def locked(self) -> None:
        """Wait until the packer's lock has been this node's."""
        await self._locked.wait()

    async def decided(self) -> None:
        """Wait until an incarnation's statement stands in the log: before, the readers of this
        node's log cannot recognise void batches, and must not begin.
        """
        await self._decided.wait()

    async def run(self) -> None:
        """Pack until `stop`. Raises BadPackerRecord for an unreadable record."""
        written = self._parts.ledger.load()
        memory = PackerMemory(None if written is None else PackerRecord.decode(written))
        self._memory = memory
        fruitless = 0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            self._packer = Packer(
                self._settings,
                self._parts,
                memory,
                self.metrics,
                self.status,
                on_locked=self._locked.set,
                on_decided=self._decided.set,
            )
            try:
                await self._packer.run()
                continue  # stopped, for good or for other settings
            except (IncarnationEnded, EgressError, SiteLogError) as error:
                self.status.state = PackerState.DOWN
                self.status.reason = str(error)
                logger.info("the packer ended, and begins again: %s", error)
            fruitless = 0 if loop.time() - began >= WELL_AFTER_S else fruitless + 1
            await self._wait(fruitless)
        self.status.state = PackerState.STOPPED

    def through(self) -> PackedThrough | None:
        """Batch up to which everything packed has its rows, or None before the first record."""
        record, packer = self._memory.record, self._packer
        if record is None or packer is None:
            return None
        return PackedThrough(record.incarnation, record.end, packer.recorded_before_ms)

    def change(self, settings: PackerSettings) -> None:
        """Pack by these settings from now on. Messages in hand go out by the former settings."""
        former, self._settings = self._settings, settings
        if self._packer is None:
            return
        if replace(former, revision=settings.revision) == settings:
            self._packer.at_revision(settings.revision)
        else:
            self._packer.stop()

    @property
    def batch_format(self) -> int:
        """Format of the batches written."""
        return self._settings.batch_format

    def repair(self, parcel: RepairParcel) -> None:
        """Put the repair into the log; `logged` gets the outcome. Raises NotPacking."""
        if self._packer is None or self._stopping.is_set():
            raise NotPacking("the packer does not run")
        self._packer.put(parcel)

    def canary(self) -> CanaryParcel | None:
        """Put a canary into the log and return the parcel, None if refused at present."""
        parcel = CanaryParcel(self._parts.now_ms())
        if self._packer is None or self._stopping.is_set():
            return None
        try:
            self._packer.put(parcel)
        except NotPacking:
            return None  # asked for again in a second
        return parcel

    def stop(self) -> None:
        """Finish everything in hand and return from `run`."""
        self._stopping.set()
        if self._packer is not None:
            self._packer.stop()

    def superseded(self, by: str) -> None:
        """End the incarnation: the log shows another packer (`LogWriter.on_superseded`)."""
        if self._packer is not None:
            self._packer.superseded(by)

    async def _wait(self, fruitless: int) -> None:
        delay = reconnect_delay_s(fruitless, self._random)
        await set_within(delay, self._stopping)
