"""One site's node: begins and ends the runs of its stages, and takes up changes meanwhile.

State folder -> log (checked) -> does the state match the broker's mark? -> the stages
(`stages.py`), in their order (`stage_order.py`) -> log -> state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dedup.journal.journal import SlotGone
from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import PasswordMissing
from federation.mesh import Mesh
from federation.names import Names
from federation.signing_keys import PrivateKeyUnusable
from relay.batches.batch import BatchHeader
from relay.batches.known_formats import KNOWN, Formats
from relay.batches.signature import Signer
from relay.content.contents import StoringRule
from relay.delivery.context import DeliveryCounters
from relay.delivery.delays import DeliveryDelays
from relay.ledger.file_writer import FileWriters
from relay.ledger.members import RevisionMembers
from relay.ledger.revisions import KeptRevisions
from relay.log.knowledge import UnknownRecord
from relay.log.run import LogEvents, LogState
from relay.log.writer import LogWriter
from relay.node.bad_records import BadRecords
from relay.node.bindings import check_versions
from relay.node.brokers import OWN_PURPOSES, Brokers, RabbitBrokers, holder_of
from relay.node.machine import HeldState, Machine, this_machine
from relay.node.mesh_watch import why_not_cut, why_over, why_refused
from relay.node.parts import NodeParts, check_addresses, same_broker, signer_of
from relay.node.shared_files import SharedFiles
from relay.node.site_folder import LEDGER, MEMBERS, REVISIONS, STANDBY, STATE, slot_folder
from relay.node.slot_place import SlotPlace
from relay.node.stage_order import EndedBadly, StageTasks, Work, loss_of_state
from relay.node.stages import LastingParts, Stages
from relay.node.start import NodeStopped, begin_with, unreadable
from relay.node.watch import GaugedQueues, NodeWatch, Waiting, watch_queues
from relay.operator.gaps import SiteGaps
from relay.operator.holds import HoldWatch
from relay.state.node_state import Commit, Loaded, NodeState

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEWED_EVERY_S = 3600.0
_CONFIRMED = "confirmed"
"""Key that is written only so that the journal says whose the state is."""
STATE_WITHIN_S = 3.0
"""Time for the last writes of a state; without them the next start is as after a kill."""


class SiteNode:
    """One site's node; `run` goes on until `stop`. Raises NodeStopped where only a person can help,
    and EndedBadly if a stage failed while the node was ending. Before the first run also
    AddressError, PasswordMissing and PrivateKeyUnusable.
    """

    parts_type: type[NodeParts] = NodeParts
    """Factory of the stages."""

    def __init__(
        self,
        site: str,
        book: AddressBook,
        folder: Path,
        formats: Formats = KNOWN,
        ledger_writers: FileWriters | None = None,
        brokers: Brokers | None = None,
        machine: Machine | None = None,
        place: SlotPlace | None = None,
    ) -> None:
        """`book` is of the mesh to begin with; `folder` is the node's own, for state and ledger.
        `formats` are those that the node reads. `ledger_writers` may be shared. `brokers` and
        `machine` are the real ones by default. `place` is by default that of a site's only slot.
        """
        self.formats = formats
        self._ledger_writers = ledger_writers or FileWriters()
        mesh = book.mesh
        self.mesh = mesh
        self.site = site
        self._machine = machine or this_machine()
        place = place or SlotPlace.of(folder, self._machine.clock.now)
        self.cluster_id = mesh.sites[site].cluster_id
        self.book = book
        self.folder = folder
        self.file_problem = ""
        """Reason why the present mesh file was not taken up; empty if it was."""
        self.counters = DeliveryCounters()
        self.delays = DeliveryDelays()
        self.is_up = asyncio.Event()
        """Set once the node has run."""
        self.is_begun = asyncio.Event()
        """Set once the node has run, or stands by."""
        self.stage = "starting"
        """Step that the start waits for; "standby" while another node has the state; "running" once
        everything is up; "stopped" at the end.
        """
        self.reason = ""
        """Reason for the stage, while the node starts and when it has stopped by itself."""
        self.writer: LogWriter | None = None
        self.stages: Stages | None = None
        """Stages of the present run; None until the log was checked."""
        self.shared_state: Callable[[], dict[str, Any]] | None = None
        """Figures of the state while the node has it, where the site's nodes share the state."""
        self.give_to: Callable[[str], Awaitable[None]] | None = None
        """Order that another of the site's nodes is to have the state, while this one has it."""
        self.takeovers = 0
        """Number of times that this node has taken a state that the site's nodes share."""
        self.waiting = Waiting()
        """Messages in the site's own queues, for the mesh or for people."""
        self._names = Names(mesh.name, place.slot)
        self.watch = NodeWatch(site, folder)
        """Watch over the log's room and the site's leave."""
        self._files = SharedFiles(folder)
        # The file goes with the first slot's state, to the node that has the order then.
        keep = self._files.wrote if place.slot == 0 else lambda file: None
        self.holds = HoldWatch(place.orders, keep)
        """Watch over what an operator holds back here."""
        self.gaps = SiteGaps(folder, self._files.wrote)
        """Gaps at which the site's stages stand."""
        self._revisions = KeptRevisions(folder / REVISIONS, self._files.wrote)
        self._members = RevisionMembers(folder / MEMBERS, self._files.wrote)
        self._stopping = asyncio.Event()
        self._is_to_end = False
        self._over = ""
        self._unreadable = ""
        """Reason why this version cannot read the site's log; empty while it can."""
        self._was_taken_out = False
        self._began_quiesced = False
        """True if the present run began with nothing under way, and the site has been quiescing
        since: what a node that ends leaves to the next one, which may end before it has looked.
        """
        self._egress_queues: tuple[str, ...] = ()
        self._signer: Signer | None = None
        self._place = place
        self.copy_report = self._machine.copy_report
        """Figures of the node's copy while it stands by, where the site's nodes share the state."""
        holder = holder_of(folder, self._machine.boot_id())
        self._brokers = brokers or RabbitBrokers(site, holder, slot=place.slot)
        self._bad_records = BadRecords(self._names.quarantine)
        self.contents = self._machine.contents
        """Contents of the log in the site's content store; None: the site's nodes share none."""
        self._take_up_storing()

    @property
    def label(self) -> str:
        """Name for people: the site, with its slot if that is not the first."""
        slot = self._place.slot
        return f"{self.site} slot {slot}" if slot else self.site

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
        """True once the node was stopped, or ends for a reason of its own."""
        return self._is_to_end

    @property
    def was_taken_out(self) -> bool:
        """True if the node ends because its site is no longer in the mesh file."""
        return self._was_taken_out

    def put_back(self, book: AddressBook) -> None:
        """Prepare an ended node for another `run`, since its site is in the file again."""
        self._is_to_end = self._was_taken_out = False
        self.take_up(book)

    def take_up(self, book: AddressBook) -> None:
        """Go on with the book's mesh. Unchanged parts are not disturbed; a part that cannot change
        while running ends in order and begins again, in this process.

        Where the mesh cannot be taken up, the former one stays and `file_problem` has the reason.
        Raises OSError if the new revision cannot be written down: call again.
        """
        if self._was_taken_out:
            return  # the node has to end first
        new, former = book.mesh, self.book
        self.file_problem = why_refused(self.mesh, new, self.site) or self._why_not_cut(new)
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
            log.error(
                "%s: the mesh file is not taken up: %s",
                self.site,
                self.file_problem,
                extra={"event": "mesh-file-refused", "site": self.site},
            )
            return
        if new.revision != self.mesh.revision:
            log.info(
                "%s: revision %s, before %s",
                self.site,
                new.revision,
                self.mesh.revision,
                extra={"event": "revision-taken-up", "site": self.site},
            )
            self._revisions.keep(new, self._machine.clock.wall_ms())
            self._members.runs(new)
        self.mesh, self.book = new, book
        self._take_up_storing()
        if is_elsewhere:
            self._stopping.set()  # all stages begin again at the new address
        else:
            self._change_stages()

    def _take_up_storing(self) -> None:
        """Store contents by the present mesh from now on."""
        above = self.mesh.sites[self.site].content_above
        if self.contents is not None:
            retention_s = self.mesh.retention_s
            self.contents.rule = None if above is None else StoringRule(above, retention_s)

    def _why_not_cut(self, new: Mesh) -> str:
        """Return why exchanges cannot be cut as the new mesh says, by the meshes of which the
        barrier has identities; empty if they can.
        """
        since_ms = self._machine.clock.wall_ms() - round(new.retention_s * 1000)
        latest = self._revisions.latest()
        former = [*([] if latest is None else [latest]), *self._revisions.lately(new, since_ms)]
        found = (why_not_cut(one, new, self.site) for one in former)
        return next(filter(None, found), "")

    def _change_stages(self) -> None:
        """Have the stages take up the present mesh and the present holds."""
        self._began_quiesced &= self.holds.present.quiescing
        if self.stages is not None:
            parts = self._parts()
            self._egress_queues = parts.egress_queues
            # A state that is another node's by now ends the run; the next run has this mesh.
            with contextlib.suppress(SlotGone):
                self.stages.change(parts, receives=not self.watch.leave.is_closed)

    async def run(self) -> None:
        """Run until `stop`. Raises NodeStopped when the mesh has no such site any more."""
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
        try:
            self.holds.look()
            while not self._is_to_end:
                self._stopping.clear()
                await self._run_once()
        except EndedBadly as error:
            if why := self._unreadable or self._over:
                raise NodeStopped(f"{why}; it {error}") from error
            raise
        if self._unreadable or self._over:
            raise NodeStopped(self._unreadable or self._over)

    async def _run_once(self) -> None:
        """Run all stages until they are to end for good, or to begin again: at another broker, or
        when the state is this node's again.
        """
        if not self.is_up.is_set():
            # An address or key that is missing at the first run was never there: a person has to
            # act, also where the node is to stand by for long. Later runs try again.
            check_addresses(self.book, self.site)
            self._signer = signer_of(self.book, self.site)
        try:
            async with AsyncExitStack() as held:
                self.stage = STANDBY
                state = self._machine.open_state(self.folder / STATE, self._note_reason)
                opened = await self._unless_stopping(held.enter_async_context(state))
                if opened is not None:
                    self.stage = "starting"
                    self.shared_state, self.give_to = opened.report, opened.give_to
                    self.takeovers += 1
                    # Before the state ends, which takes a while in which a mesh may come.
                    held.callback(self._let_go)
                    await self._run_with(opened)
        except (SlotGone, ExceptionGroup) as error:
            loss = loss_of_state(error)
            if loss is None:
                raise
            log.warning(
                "%s: %s; standing by",
                self.site,
                loss,
                extra={"event": "standing-by", "site": self.site},
            )

    def _let_go(self) -> None:
        """Forget everything that uses the state."""
        self.writer = self.stages = self.shared_state = self.give_to = None
        self._files.end()
        if not self._is_to_end:
            self.stage = STANDBY

    async def _unless_stopping(self, step: Awaitable[T]) -> T | None:
        """Return the result of a step, or None if the node is to end first."""
        waiting = asyncio.ensure_future(step)
        ending = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            ending.cancel()
            waiting.cancel()
            await asyncio.wait({waiting})

    async def _run_with(self, opened: HeldState) -> None:
        state = NodeState(opened.store)
        check_versions(state)
        if opened.report is not None:
            self._files.begin(state)
            self.holds.look()
            self._revisions.load()
        self._began_quiesced = state.is_quiesced and self.holds.present.quiescing
        if why := self._why_not_cut(self.mesh):
            raise NodeStopped(why)
        self.watch.begin()
        self._revisions.keep(self.mesh, self._machine.clock.wall_ms())
        self._members.load([self.mesh, *self._revisions.retired(self.mesh)])
        loaded = state.load()
        events = LogEvents(
            self._bad_records.add,
            self._on_superseded,
            self._on_log_state,
            self._on_unknown_record,
            self._place.trace,
        )
        writer = self.writer = self._parts().writer(state, events)
        tasks = StageTasks(self.label, self._stopping)
        tasks.begin("log", writer.run_forever())
        tasks.begin("state", opened.hold(self._stopping.set, self._handled))
        try:
            has_run = await self._run_tasks(tasks, state, loaded, writer)
        finally:
            tasks.cancel("state")
            await writer.close()
            await tasks.over()
        tasks.raise_failures()
        if (has_run or self._began_quiesced) and tasks.is_in_order:
            # An order of the last moment goes with the state.
            self.holds.look()
            is_quiet = self.watch.leave.is_quiesced or (
                self._began_quiesced and not writer.counts.appended_messages
            )
            state.end(
                Commit(),
                is_quiesced=is_quiet and self.holds.present.quiescing,
                is_answered=writer.ended_answered
                and self.stages is not None
                and self.stages.deliverer.ended_answered,
            )
            try:
                async with asyncio.timeout(STATE_WITHIN_S):
                    await state.store.synced()
            except TimeoutError:
                log.warning(
                    "%s: the state's last writes were not confirmed in time",
                    self.site,
                    extra={"event": "state-not-confirmed", "site": self.site},
                )

    async def _run_tasks(
        self, tasks: StageTasks, state: NodeState, loaded: Loaded, writer: LogWriter
    ) -> bool:
        """Return False if the node was to end before its stages began."""
        if not await tasks.until(writer.running()):
            return False
        kept, random_bytes = f"the state folder {self.folder / STATE}", self._machine.random_bytes
        if self.shared_state is not None:
            kept = "the journal of the state that the site's nodes share"
        beginning = begin_with(
            state,
            loaded,
            writer,
            kept,
            self._note_reason,
            random_bytes,
            partial(self._confirm, state),
        )
        if not await tasks.until(beginning):
            return False
        stages = self.stages = self._stages(state, loaded, writer)
        await tasks.run(
            stages, lambda: self._beside(stages), self._reached, lambda: self._is_to_end
        )
        return True

    def _handled(self) -> int | None:
        """Count the messages that this run has logged, and this node delivered; None before all
        stages run.
        """
        if self.writer is None or self.stage != "running":
            return None
        return self.writer.counts.appended_messages + self.counters.delivered

    async def _confirm(self, state: NodeState) -> None:
        """Raise SlotGone if a state that the site's nodes share is another node's by now."""
        if self.shared_state is not None:
            commit = Commit()
            commit.put(_CONFIRMED, b"")
            await state.write_synced(commit)

    def _stages(self, state: NodeState, loaded: Loaded, writer: LogWriter) -> Stages:
        parts = self._parts()
        self._egress_queues = parts.egress_queues
        lasting = LastingParts(
            members=self._members,
            gaps=self.gaps,
            ledger=self.folder / LEDGER,
            ledger_of=lambda slot: slot_folder(self._place.orders, slot) / LEDGER,
            ledger_writers=self._ledger_writers,
            bad_records=self._bad_records,
        )
        return Stages.wired(parts, state, loaded, writer, lasting)

    def _beside(self, stages: Stages) -> dict[str, Work]:
        """Work that runs beside the stages once the log is read, by name."""
        return {
            "quarantine": self._bad_records.run(stages.context),
            "gauge": self._gauge_queues(),
            "renewal": self._renew(),
            "holds": self.holds.run(self._change_stages, stages.state.store.synced),
            "gaps": self.gaps.run(stages.go_on, stages.state.store.synced),
            "watch": self.watch.run(
                stages,
                lambda: self.mesh.sites[self.site].log,
                lambda: self.waiting.egress,
                lambda: self.holds.present,
                self._change_stages,
            ),
        }

    async def _renew(self) -> None:
        """Drop expired things, such as the keys of former mesh files, every RENEWED_EVERY_S."""
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            self._change_stages()

    def _parts(self) -> NodeParts:
        """Make the factory of stages for the present mesh."""
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
            self._place.slot,
            self._place.uplink,
            self.delays,
            self._place.trace,
        )

    def _reached(self, stage: str) -> None:
        self.stage = stage
        if stage == "running":
            self.is_up.set()
            self.is_begun.set()
            self.gaps.begun()

    def _note_reason(self, reason: str) -> None:
        """Note what the start waits for."""
        self.reason = reason
        if self.stage == STANDBY and self.copy_report is not None:
            self.is_begun.set()

    # -- events of the log -------------------------------------------------------------------

    def _on_superseded(self, header: BatchHeader) -> None:
        if self.stages is not None:
            self.stages.packer.superseded(str(header.name))

    def _on_unknown_record(self, error: UnknownRecord) -> None:
        self._unreadable = unreadable(error)
        self.stop()

    def _on_log_state(self, state: LogState, reason: str) -> None:
        if state is LogState.CONNECTING and reason:
            self.reason = f"log: {reason}"
            log.warning(
                "%s: log: %s", self.site, reason, extra={"event": "log-away", "site": self.site}
            )
        elif state is LogState.RUNNING:
            self.reason = ""

    async def _gauge_queues(self) -> None:
        def report(waiting: Waiting) -> None:
            self.waiting = waiting

        await watch_queues(
            partial(self._parts().connect, "gauge"),
            GaugedQueues(
                lambda: self._egress_queues,
                self._names.dead_letters,
                self._names.quarantine,
                lambda: self.counters.put_aside_or_mended,
            ),
            report,
            self._machine.random.random,
        )
