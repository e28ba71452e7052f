"""One site's relay: wires the stages, starts them in order, and ends them in order.

Start: state folder -> log (checked) -> is the state the one that the broker remembers? -> packer,
until it has said where its predecessors ended -> deliverer and links. Stop: packer (what is in
hand is logged and acknowledged), deliverer (what is in flight is answered and committed), links,
log, state.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
from functools import partial
from pathlib import Path

from dedup.rocksdb_store import RocksdbStore
from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.passwords import PasswordMissing
from federation.names import Names
from relay.aside.mending import Mending
from relay.aside.quarantine import quarantined_bytes
from relay.batches.batch import BatchHeader, Predecessor
from relay.batches.incarnation import VoidTable
from relay.batches.known_formats import KNOWN, Formats
from relay.bulk_amqp import Connection as BulkConnection
from relay.bulk_amqp import connect
from relay.delivery.context import DeliveryContext, DeliveryCounters
from relay.delivery.deliverer import Deliverer
from relay.ledger.export import LedgerExport
from relay.ledger.file_writer import FileWriters
from relay.ledger.members import RevisionMembers
from relay.ledger.revisions import KeptRevisions
from relay.ledger.rows import Stage
from relay.links.neighbour_logs import NeighbourLogs
from relay.log.gap import gap_reason, gap_row
from relay.log.knowledge import UnknownRecord
from relay.log.reader import LogGap
from relay.log.run import LogEvents, LogState
from relay.log.writer import LogWriter
from relay.node.bindings import StateLogMemory, check_versions
from relay.node.hold_watch import HoldWatch
from relay.node.housekeeping import Housekeeping
from relay.node.links import NodeLinks
from relay.node.mesh_change import why_over, why_refused
from relay.node.parts import NodeParts, now_ms, same_broker
from relay.node.queue_gauge import GaugedQueues, Waiting, watch_queues
from relay.node.recovery import Recovered, rebuild
from relay.node.start import NodeStopped, begin_with
from relay.node.through_rows import ThroughRows
from relay.node.watch import NodeWatch, Stages
from relay.packing.packer_loop import PackerLoop
from relay.state.node_state import POINT_TABLES, TABLES, Commit, Loaded, NodeState

log = logging.getLogger(__name__)


class SiteNode:
    """One site's node. `run` until `stop`; raises NodeStopped where only a person can help."""

    def __init__(
        self,
        site: str,
        book: AddressBook,
        folder: Path,
        formats: Formats = KNOWN,
        ledger_writers: FileWriters | None = None,
    ) -> None:
        """`book` is of the mesh to begin with; `folder` is the site's own: its state and its
        ledger are in there. `formats` are those that it reads. `ledger_writers` may be shared.
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
        self.packer: PackerLoop | None = None
        self.deliverer: Deliverer | None = None
        self.links: NodeLinks | None = None
        self.writer: LogWriter | None = None
        self.housekeeping: Housekeeping | None = None
        self.mending: Mending | None = None
        self.waiting = Waiting()
        """In the site's own queues, for the mesh or for people."""
        self._names = Names(mesh.name)
        self.watch = NodeWatch(site, folder)
        """The log's room, and the site's leave."""
        self.holds = HoldWatch(folder)
        """What an operator holds back here."""
        self._revisions = KeptRevisions(folder / "ledger" / "revisions")
        self._members = RevisionMembers(folder / "members.json")
        self._stopping = asyncio.Event()
        self._is_to_end = False
        self._over = ""
        self._unreadable = ""
        """What this version cannot read of the site's log; empty while it can."""
        self._was_taken_out = False
        self._context: DeliveryContext | None = None
        self._egress_queues: tuple[str, ...] = ()
        self._random = random.Random()
        self._bad_records: asyncio.Queue[tuple[int, bytes, str]] = asyncio.Queue()

    def stop(self) -> None:
        """Finish what is in flight and return from `run`."""
        self._is_to_end = True
        self._stopping.set()

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
            except (AddressError, PasswordMissing) as error:
                self.file_problem = str(error)
        if self.file_problem:
            log.error("%s: the mesh file is not taken up: %s", self.site, self.file_problem)
            return
        if new.revision != self.mesh.revision:
            log.info("%s: revision %s, before %s", self.site, new.revision, self.mesh.revision)
            self._revisions.keep(new, now_ms())
            self._members.runs(new)
        self.mesh, self.book = new, book
        if is_elsewhere:
            self._stopping.set()  # every stage works there: all end, and begin again there
        else:
            self._change_stages()

    def _change_stages(self) -> None:
        """Each stage takes up what is new to it; none waits for another."""
        parts = self._parts()
        if self.packer is not None:
            self._egress_queues = parts.egress_queues
            self.packer.change(parts.packer_settings())
        if (context := self._context) is not None:
            context.mesh = parts.delivered_mesh()
            context.absent = self._members.absent(self.mesh)
            context.barrier.set_window(parts.window_ms)
            context.window_ms = context.barrier.memory_ms
            context.hold(parts.held)
        if self.housekeeping is not None:
            self.housekeeping.window_ms = parts.window_ms
        if self.links is not None:
            # Of what is retired too: it may still not cross the sites of its never_via.
            self.links.change(
                parts.delivered_mesh(),
                self.book,
                parts.holds,
                receives=not self.watch.leave.is_closed,
            )

    async def run(self) -> None:
        """Until `stop`, or until the mesh has no such site any more (NodeStopped)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._revisions.keep(self.mesh, now_ms())
        self._load_members()
        try:
            self.holds.look()
            while not self._is_to_end:
                self._stopping.clear()
                self.stage = "starting"
                await self._run_once()
        finally:
            self.stage = "stopped"
        if self._unreadable or self._over:
            raise NodeStopped(self._unreadable or self._over)

    async def _run_once(self) -> None:
        """All stages, until they are to end for good or to begin again at another broker."""
        store = RocksdbStore(self.folder / "state", TABLES, point_tables=POINT_TABLES)
        try:
            await self._run_with(NodeState(store))
        finally:
            store.close()
            self.packer = self.deliverer = self.links = self.writer = None
            self.housekeeping = self.mending = self._context = None

    async def recover(self) -> Recovered:
        """Make a new state folder from the log and the broker's mark; the former one is kept
        beside it as `state.lost-N`. The node must not run. Raises StoreError, SiteLogError,
        NodeStopped.
        """
        folder = self.folder / "state"
        if folder.exists():
            RocksdbStore(folder, TABLES, point_tables=POINT_TABLES).close()  # nobody else has it
            number = 1
            while (kept := self.folder / f"state.lost-{number}").exists():
                number += 1
            folder.rename(kept)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._load_members()
        unfinished = self.folder / "state.recovering"
        shutil.rmtree(unfinished, ignore_errors=True)
        store = RocksdbStore(unfinished, TABLES, point_tables=POINT_TABLES)
        try:
            found = await self._rebuild(NodeState(store))
        finally:
            store.close()
        unfinished.rename(folder)
        return found

    def _log_writer(self, state: NodeState) -> LogWriter:
        events = LogEvents(
            self._on_bad_record, self._on_superseded, self._on_log_state, self._on_unknown_record
        )
        return LogWriter(
            self._parts().open_log,
            StateLogMemory(state),
            events,
            origin=self.cluster_id,
            formats=self.formats,
        )

    async def _rebuild(self, state: NodeState) -> Recovered:
        writer = self._log_writer(state)
        logging_task = asyncio.create_task(writer.run_forever(), name=f"{self.site}: log")
        try:
            if not await self._until(writer.running(), logging_task):
                raise NodeStopped(self._unreadable)
            mark = await (await writer.connected()).load_mark()
            state.begin(os.urandom(16))
            context, _ = self._parts().context(state, state.load(), writer, VoidTable())
            context.absent = self._members.absent(self.mesh)
            return await rebuild(context, mark)
        finally:
            await writer.close()
            await asyncio.gather(logging_task, return_exceptions=True)

    async def _run_with(self, state: NodeState) -> None:
        check_versions(state)
        loaded = state.load()
        writer = self.writer = self._log_writer(state)
        logging_task = asyncio.create_task(writer.run_forever(), name=f"{self.site}: log")
        try:
            if not await self._until(writer.running(), logging_task):
                return
            beginning = begin_with(state, loaded, writer, self.folder / "state", self._say)
            if not await self._until(beginning, logging_task):
                return
            await self._run_stages(state, loaded, writer, logging_task)
        finally:
            await writer.close()
            await asyncio.gather(logging_task, return_exceptions=True)
        state.end(Commit())

    def _load_members(self) -> None:
        self._members.load([self.mesh, *self._revisions.retired(self.mesh)])

    def _parts(self) -> NodeParts:
        """Makes the stages of the mesh as it is now."""
        retired = self._revisions.retired(self.mesh)
        holds = self.holds.present
        full = self.watch.room.blocks
        return NodeParts(
            self.site,
            self.book,
            retired,
            holds,
            full,
            self.counters,
            self.formats,
            self._random,
        )

    async def _run_stages(
        self,
        state: NodeState,
        loaded: Loaded,
        writer: LogWriter,
        logging_task: asyncio.Task[None],
    ) -> None:
        parts = self._parts()
        voids = VoidTable(
            (void.origin, Predecessor(incarnation, void.end))
            for incarnation, void in loaded.voids.items()
        )
        neighbours = NeighbourLogs()
        self._egress_queues = parts.egress_queues
        packer = self.packer = parts.packer(state, writer, voids, neighbours)
        tasks = [
            asyncio.create_task(packer.run(), name=f"{self.site}: packer"),
            logging_task,
        ]
        context, connection = parts.context(state, loaded, writer, voids)
        context.absent = self._members.absent(self.mesh)
        self._context = context
        deliverer = self.deliverer = Deliverer(context, connection, loaded.flows)
        self.mending = Mending(context, self._connect_to_mend)
        links = self.links = NodeLinks(
            parts.delivered_mesh(),
            self.site,
            self.book,
            state,
            writer,
            voids,
            lambda data, reason: self._bad_records.put_nowait((-1, data, reason)),
            neighbours,
            self._members,
            partial(setattr, context, "absent"),
            parts.holds,
            formats=self.formats,
        )
        housekeeping = self.housekeeping = Housekeeping(
            state=state,
            writer=writer,
            barrier=context.barrier,
            settled=context.settled,
            export=LedgerExport(state, self.site, self.folder / "ledger", self._ledger_writers),
            through=ThroughRows(
                self.cluster_id, state, writer, context.settlement, packer.through, now_ms
            ),
            position=lambda: context.position,
            links=links.stages,
            window_ms=parts.window_ms,
            tell_memory=partial(setattr, context, "window_ms"),
            members=self._members,
            now_ms=now_ms,
        )
        try:
            tasks.append(asyncio.create_task(links.run_receivers(), name=f"{self.site}: in"))
            if await self._until(packer.decided(), *tasks):
                tasks += [
                    asyncio.create_task(
                        self._deliver(deliverer, state), name=f"{self.site}: deliverer"
                    ),
                    asyncio.create_task(links.run_senders(), name=f"{self.site}: out"),
                    asyncio.create_task(housekeeping.run(), name=f"{self.site}: housekeeping"),
                    asyncio.create_task(
                        self._quarantine_records(context), name=f"{self.site}: quarantine"
                    ),
                    asyncio.create_task(self._gauge_queues(), name=f"{self.site}: gauge"),
                    asyncio.create_task(
                        self.holds.run(self._change_stages), name=f"{self.site}: holds"
                    ),
                    asyncio.create_task(
                        self.watch.run(
                            Stages(writer, packer, context, links),
                            lambda: self.mesh.sites[self.site].log,
                            lambda: self.waiting.egress,
                            lambda: self.holds.present.draining,
                            self._change_stages,
                        ),
                        name=f"{self.site}: watch",
                    ),
                ]
                self.stage = "running"
                self.is_up.set()
                await self._until(self._stopping.wait(), *tasks)
            self.stage = "stopping"
            packer.stop()
            context.stopping.set()
            await self._wind_up(tasks, housekeeping)
        finally:
            for task in tasks:
                if task is not logging_task:
                    task.cancel()
            await asyncio.gather(
                *(t for t in tasks if t is not logging_task), return_exceptions=True
            )

    async def _deliver(self, deliverer: Deliverer, state: NodeState) -> None:
        try:
            await deliverer.run()
        except LogGap as gap:
            commit = Commit()
            commit.row(gap_row(gap, Stage.DELIVERED, now_ms()))
            state.write(commit)
            raise NodeStopped(gap_reason(gap)) from gap

    async def _wind_up(self, tasks: list[asyncio.Task[None]], housekeeping: Housekeeping) -> None:
        """The end in order, as far as there is time for it; nothing is lost by what is left."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait(
            [t for t in tasks if t.get_name().endswith((": packer", ": deliverer"))],
            timeout=STAGES_WITHIN_S,
        )
        log.info("%s: stages ended after %.1f s", self.site, loop.time() - began)
        # What the links have heard last becomes rows when they end: before the export.
        links = [t for t in tasks if t.get_name().endswith((": in", ": out"))]
        for task in links:
            task.cancel()
        await asyncio.wait(links, timeout=LINKS_WITHIN_S)
        await housekeeping.store_mark(MARK_WITHIN_S)
        try:
            async with asyncio.timeout_at(began + STOP_WITHIN_S):
                await housekeeping.close_books(THROUGH_WITHIN_S)
        except TimeoutError:
            log.info("%s: no time left to export the ledger: the next start does it", self.site)

    def _say(self, reason: str) -> None:
        """What the start waits for."""
        self.reason = reason

    async def _until(self, step: object, *tasks: asyncio.Task[None]) -> bool:
        """Wait for the step; False when the node is to stop first. Raises what a task raises."""
        waiting = asyncio.ensure_future(step)  # type: ignore[call-overload]
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({waiting, stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
                    raise RuntimeError(f"{task.get_name()} ended by itself")
            if waiting.done():
                waiting.result()
            return not self._stopping.is_set()
        finally:
            waiting.cancel()
            stopping.cancel()

    async def _connect_to_mend(self) -> BulkConnection:
        address = self.book.node(self.site)
        return await connect(
            address.uri, name=f"isthmus {self.site} mending", ssl_context=address.ssl_context
        )

    # -- what the log tells ------------------------------------------------------------------

    def _on_bad_record(self, offset: int, data: bytes, reason: str) -> None:
        self._bad_records.put_nowait((offset, data, reason))

    def _on_superseded(self, header: BatchHeader) -> None:
        if self.packer is not None:
            self.packer.superseded(str(header.name))

    def _on_unknown_record(self, error: UnknownRecord) -> None:
        self._unreadable = (
            f"this site's log has, at offset {error.offset}, {error.reason}: start the version of"
            " Isthmus that ran here before; nothing was taken from there on, and nothing is lost"
        )
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

        address = self.book.node(self.site)
        await watch_queues(
            partial(
                connect,
                address.uri,
                name=f"isthmus {self.site} gauge",
                ssl_context=address.ssl_context,
            ),
            GaugedQueues(
                lambda: self._egress_queues,
                self._names.dead_letters,
                self._names.quarantine,
                lambda: self.counters.put_aside_or_mended,
            ),
            tell,
            self._random.random,
        )

    async def _quarantine_records(self, context: DeliveryContext) -> None:
        """Records of the log that are no batches go to the quarantine queue."""
        while True:
            offset, data, reason = await self._bad_records.get()
            message = quarantined_bytes(
                data, queue=self._names.quarantine, reason=reason, offset=offset
            )
            while (local := await context.exchange()) is not None:
                answers = await local.publish("", [message], timeout_s=30.0)
                if answers[0].name == "CONFIRMED":
                    self.counters.quarantined += 1
                    break
                await asyncio.sleep(1.0)


STAGES_WITHIN_S = 6.0
"""What is in flight is answered within this time of a stop, or stays in doubt."""
LINKS_WITHIN_S = 1.0
"""What keeps a link's connection from closing does not keep the node."""
MARK_WITHIN_S = 1.0
THROUGH_WITHIN_S = 1.0
STOP_WITHIN_S = 7.5
"""... and the ledger exported; closing connections takes up to two seconds more."""
