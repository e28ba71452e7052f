"""One site's relay: begins and ends its stages' runs, and takes up what changes meanwhile.

State folder -> log (checked) -> is the state the one that the broker remembers? -> the stages
(`stages.py`), in their order (`stage_order.py`) -> log -> state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.passwords import PasswordMissing
from federation.names import Names
from federation.signing_keys import PrivateKeyUnusable
from relay.batches.batch import BatchHeader
from relay.batches.known_formats import KNOWN, Formats
from relay.batches.signature import Signer
from relay.delivery.context import DeliveryCounters
from relay.ledger.file_writer import FileWriters
from relay.ledger.members import RevisionMembers
from relay.ledger.revisions import KeptRevisions
from relay.log.knowledge import UnknownRecord
from relay.log.run import LogEvents, LogState
from relay.log.writer import LogWriter
from relay.node.bad_records import BadRecords
from relay.node.bindings import check_versions
from relay.node.brokers import OWN_PURPOSES, Brokers, RabbitBrokers, holder_of
from relay.node.machine import Machine, this_machine
from relay.node.mesh_change import why_over, why_refused
from relay.node.parts import NodeParts, check_addresses, same_broker
from relay.node.queue_gauge import GaugedQueues, Waiting, watch_queues
from relay.node.signing import signer_of
from relay.node.site_folder import LEDGER, MEMBERS, REVISIONS, STATE
from relay.node.stage_order import EndedBadly, StageTasks, Work
from relay.node.stages import Stages
from relay.node.start import NodeStopped, begin_with, unreadable
from relay.node.watch import NodeWatch
from relay.operator.gaps import SiteGaps
from relay.operator.hold_watch import HoldWatch
from relay.state.node_state import Commit, Loaded, NodeState

log = logging.getLogger(__name__)

RENEWED_EVERY_S = 3600.0


class SiteNode:
    """One site's node. `run` until `stop`; raises NodeStopped where only a person can help (and
    AddressError, PasswordMissing, PrivateKeyUnusable before it has run once), and EndedBadly where
    it was to end and a stage failed meanwhile.
    """

    parts_type: type[NodeParts] = NodeParts
    """What makes its stages."""

    def __init__(
        self,
        site: str,
        book: AddressBook,
        folder: Path,
        formats: Formats = KNOWN,
        ledger_writers: FileWriters | None = None,
        brokers: Brokers | None = None,
        machine: Machine | None = None,
    ) -> None:
        """`book` is of the mesh to begin with; `folder` is the site's own: its state and its
        ledger are in there. `formats` are those that it reads. `ledger_writers` may be shared.
        `brokers` and `machine` are the real ones unless told.
        """
        self.formats = formats
        self._ledger_writers = ledger_writers or FileWriters()
        mesh = book.mesh
        self.mesh = mesh
        self.site = site
        self.cluster_id = mesh.sites[site].cluster_id
        self.book = book
        self.folder = folder
        self.file_problem = ""
        """Why the mesh file as it is now was not taken up; empty when it was."""
        self.counters = DeliveryCounters()
        self.is_up = asyncio.Event()
        """It has run at least once."""
        self.stage = "starting"
        """What the start waits for; "running" once everything is up; "stopped" at the end."""
        self.reason = ""
        """Of the stage, while it starts and when it has stopped by itself."""
        self.writer: LogWriter | None = None
        self.stages: Stages | None = None
        """Of the present run; None until the log was checked."""
        self.waiting = Waiting()
        """In the site's own queues, for the mesh or for people."""
        self._names = Names(mesh.name)
        self.watch = NodeWatch(site, folder)
        """The log's room, and the site's leave."""
        self.holds = HoldWatch(folder)
        """What an operator holds back here."""
        self.gaps = SiteGaps(folder)
        """At which its stages stand."""
        self._revisions = KeptRevisions(folder / REVISIONS)
        self._members = RevisionMembers(folder / MEMBERS)
        self._stopping = asyncio.Event()
        self._is_to_end = False
        self._over = ""
        self._unreadable = ""
        """What this version cannot read of the site's log; empty while it can."""
        self._was_taken_out = False
        self._egress_queues: tuple[str, ...] = ()
        self._signer: Signer | None = None
        self._machine = machine or this_machine()
        holder = holder_of(folder, self._machine.boot_id())
        self._brokers = brokers or RabbitBrokers(site, holder)
        self._bad_records = BadRecords(self._names.quarantine)

    @property
    def connected_to(self) -> Mapping[str, str]:
        """Broker nodes by stage, where the site has several addresses."""
        in_use = self._brokers.in_use()
        return {purpose: in_use[purpose] for purpose in OWN_PURPOSES if purpose in in_use}

    def stop(self) -> None:
        """Finish what is in flight and return from `run`."""
        self._is_to_end = True
        self._stopping.set()

    @property
    def is_to_end(self) -> bool:
        """It was told to, or is to end for a reason of its own."""
        return self._is_to_end

    @property
    def was_taken_out(self) -> bool:
        """It ended, or is about to, because the mesh file did not have its site any more."""
        return self._was_taken_out

    def put_back(self, book: AddressBook) -> None:
        """The site is in the file again, and has ended meanwhile: it may `run` once more."""
        self._is_to_end = self._was_taken_out = False
        self.take_up(book)

    def take_up(self, book: AddressBook) -> None:
        """Go on with the book's mesh. What does not change is not disturbed; what cannot change
        while it runs ends in order and begins again, in this process.

        Where that cannot be, the former mesh stays and `file_problem` says why. Raises OSError if
        the new revision cannot be written down: ask again.
        """
        if self._was_taken_out:
            return  # it ends first
        new, former = book.mesh, self.book
        self.file_problem = why_refused(self.mesh, new, self.site)
        if not self.file_problem:
            self._over = why_over(new, self.site, is_drained=self.watch.leave.is_drained)
            if self._over:
                self._was_taken_out = True
                self.stop()
                return
            try:
                is_elsewhere = not same_broker(former, book, self.site)
                self._signer = signer_of(book, self.site)
            except (AddressError, PasswordMissing, PrivateKeyUnusable) as error:
                self.file_problem = str(error)
        if self.file_problem:
            log.error("%s: the mesh file is not taken up: %s", self.site, self.file_problem)
            return
        if new.revision != self.mesh.revision:
            log.info("%s: revision %s, before %s", self.site, new.revision, self.mesh.revision)
            self._revisions.keep(new, self._machine.clock.wall_ms())
            self._members.runs(new)
        self.mesh, self.book = new, book
        if is_elsewhere:
            self._stopping.set()  # every stage works there: all end, and begin again there
        else:
            self._change_stages()

    def _change_stages(self) -> None:
        """They take up the mesh as it is now, and what is held."""
        if self.stages is not None:
            parts = self._parts()
            self._egress_queues = parts.egress_queues
            self.stages.change(parts, receives=not self.watch.leave.is_closed)

    async def run(self) -> None:
        """Until `stop`, or until the mesh has no such site any more (NodeStopped)."""
        reason = ""
        try:
            await self._run_until_over()
        except Exception as error:
            reason = str(error)
            raise
        finally:
            self.stage, self.reason = "stopped", reason

    async def _run_until_over(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._revisions.keep(self.mesh, self._machine.clock.wall_ms())
        self._members.load([self.mesh, *self._revisions.retired(self.mesh)])
        try:
            self.holds.look()
            while not self._is_to_end:
                self._stopping.clear()
                self.stage = "starting"
                await self._run_once()
        except EndedBadly as error:
            if why := self._unreadable or self._over:
                raise NodeStopped(f"{why}; it {error}") from error
            raise
        if self._unreadable or self._over:
            raise NodeStopped(self._unreadable or self._over)

    async def _run_once(self) -> None:
        """All stages, until they are to end for good or to begin again at another broker."""
        store = self._machine.open_store(self.folder / STATE)
        try:
            await self._run_with(NodeState(store))
        finally:
            store.close()
            self.writer = self.stages = None

    async def _run_with(self, state: NodeState) -> None:
        check_versions(state)
        if not self.is_up.is_set():
            # What lacks now was never there: a person has to know. Later it is tried again.
            check_addresses(self.book, self.site)
            self._signer = signer_of(self.book, self.site)
        loaded = state.load()
        events = LogEvents(
            self._bad_records.add, self._on_superseded, self._on_log_state, self._on_unknown_record
        )
        writer = self.writer = self._parts().writer(state, events)
        tasks = StageTasks(self.site, self._stopping)
        tasks.begin("log", writer.run_forever())
        try:
            has_run = await self._run_tasks(tasks, state, loaded, writer)
        finally:
            await writer.close()
            await tasks.over()
        tasks.raise_failures()
        if has_run and tasks.is_in_order:
            state.end(Commit())

    async def _run_tasks(
        self, tasks: StageTasks, state: NodeState, loaded: Loaded, writer: LogWriter
    ) -> bool:
        """Whether it came to the stages before the node was to end."""
        if not await tasks.until(writer.running()):
            return False
        folder, random_bytes = self.folder / STATE, self._machine.random_bytes
        beginning = begin_with(state, loaded, writer, folder, self._say, random_bytes)
        if not await tasks.until(beginning):
            return False
        stages = self.stages = self._stages(state, loaded, writer)
        await tasks.run(stages, lambda: self._beside(stages), self._reached)
        return True

    def _stages(self, state: NodeState, loaded: Loaded, writer: LogWriter) -> Stages:
        parts = self._parts()
        self._egress_queues = parts.egress_queues
        return Stages.wired(
            parts,
            state,
            loaded,
            writer,
            self._members,
            self.folder / LEDGER,
            self._ledger_writers,
            self._bad_records.add_from_link,
            self.gaps,
        )

    def _beside(self, stages: Stages) -> dict[str, Work]:
        """What runs beside the stages once the log is read."""
        return {
            "quarantine": self._bad_records.run(stages.context),
            "gauge": self._gauge_queues(),
            "renewal": self._renew(),
            "holds": self.holds.run(self._change_stages),
            "gaps": self.gaps.run(stages.go_on, stages.state.store.synced),
            "watch": self.watch.run(
                stages,
                lambda: self.mesh.sites[self.site].log,
                lambda: self.waiting.egress,
                lambda: self.holds.present.draining,
                self._change_stages,
            ),
        }

    async def _renew(self) -> None:
        """What holds for some time only, the keys of former mesh files, ends with that time."""
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            self._change_stages()

    def _parts(self) -> NodeParts:
        """Makes the stages of the mesh as it is now."""
        return self.parts_type(
            self.site,
            self.book,
            self._revisions.retired(self.mesh),
            self.holds.present,
            self.watch.room.blocks,
            self.counters,
            self.formats,
            self._signer,
            self._machine,
            self._brokers,
            self._revisions.lately(
                self.mesh, self._machine.clock.wall_ms() - int(1000 * self.mesh.retention_s)
            ),
        )

    def _reached(self, stage: str) -> None:
        self.stage = stage
        if stage == "running":
            self.is_up.set()
            self.gaps.begun()

    def _say(self, reason: str) -> None:
        """What the start waits for."""
        self.reason = reason

    # -- what the log tells ------------------------------------------------------------------

    def _on_superseded(self, header: BatchHeader) -> None:
        if self.stages is not None:
            self.stages.packer.superseded(str(header.name))

    def _on_unknown_record(self, error: UnknownRecord) -> None:
        self._unreadable = unreadable(error)
        self.stop()

    def _on_log_state(self, state: LogState, reason: str) -> None:
        if state is LogState.CONNECTING and reason:
            self.reason = f"log: {reason}"
            log.warning("%s: log: %s", self.site, reason)
        elif state is LogState.RUNNING:
            self.reason = ""

    async def _gauge_queues(self) -> None:
        def tell(waiting: Waiting) -> None:
            self.waiting = waiting

        await watch_queues(
            partial(self._parts().connect, "gauge"),
            GaugedQueues(
                lambda: self._egress_queues,
                self._names.dead_letters,
                self._names.quarantine,
                lambda: self.counters.put_aside_or_mended,
            ),
            tell,
            self._machine.random.random,
        )
