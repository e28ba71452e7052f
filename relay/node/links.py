"""All links that begin or end at one site: made from the mesh, run, and reported."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from federation.brokers.addresses import AddressError, AmqpAddress, vouched_user
from federation.brokers.credentials import PasswordMissing
from federation.mesh import Link
from federation.multicast import group_exchanges, group_sites
from federation.partitions import base_lane
from relay import ticks
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Place
from relay.delay_histogram import DelaySnapshot
from relay.delivery.context import DeliveryContext
from relay.group.brought import BroughtBatches
from relay.ledger.batch_rows import linked_row
from relay.ledger.members import BadMembers, RevisionMembers
from relay.ledger.rows import Stage
from relay.links.ends import LinkEnds
from relay.links.forwarding import Forwarding, forwarding_for
from relay.links.metrics import AppendTimes
from relay.links.neighbour_logs import NeighbourLogs
from relay.links.receiver.machine import LinkReceiver
from relay.links.receiver.task import LinkReceiverTask
from relay.links.sender.machine import LinkSender
from relay.links.sender.parts import SenderParts
from relay.links.sender.task import LinkSenderTask
from relay.links.settings import LinkSettings
from relay.links.transport.connection import Clock, LinkParts
from relay.links.transport.rabbit import LinkEndAddress
from relay.links.uplink import minute_of_day, rates_at
from relay.log.open_gap import OpenGap, gap_row
from relay.log.reader import LogGap
from relay.log.writer import LogWriter
from relay.node.bindings import StateLinkMemory
from relay.node.brokers import PresentConnector
from relay.node.link_reports import (
    LinkWatch,
    receiver_report,
    reports_by_link,
    resting_report,
    sender_report,
)
from relay.node.parts import NodeParts
from relay.operator.gaps import SiteGaps
from relay.state.node_state import Commit, NodeState
from relay.tracing.batch_trace import LinkTrace

log = logging.getLogger(__name__)

BEHIND_S = 30.0
"""Age of a lane's oldest message from which the lane counts as behind; its backlog then does not go
before what other lanes send now.
"""


class NodeLinks:
    """All links of one site. Senders start later than receivers: see `stage_order`."""

    def __init__(
        self,
        parts: NodeParts,
        context: DeliveryContext,
        members: RevisionMembers,
        gaps: SiteGaps,
        neighbours: NeighbourLogs,
        watch: LinkWatch,
        quarantine: Callable[[bytes, str], None],
    ) -> None:
        """`context` is the deliverer's, which learns of each announcement of a revision's sites.
        `quarantine` takes the bytes that came over a link and are no batch, and why.
        """
        machine = parts.machine
        self._site = parts.site
        self._slot = parts.slot
        self._context = context
        self._state = context.state
        self._writer = context.log
        self._voids = context.voids
        self._quarantine = quarantine
        self._neighbours = neighbours
        self._members = members
        self._gaps = LinkGaps(gaps, self._writer, self._state, machine.clock)
        self._accepted_gaps: Counter[str] = Counter()
        """Number of gaps behind which each link out of here went on; its sender is made anew for
        each.
        """
        self._brokers = parts.brokers
        self._names = parts.names
        self._settings = LinkSettings()
        self._formats = parts.formats
        self._clock = machine.clock
        self._times = AppendTimes()
        self._random = machine.random
        self._random_bytes = machine.random_bytes
        self._uplink = parts.uplink
        self._trace = parts.trace
        self._receivers = LinkEnds(self._make_receiver)
        self._senders = LinkEnds(self._make_sender, self._forget_position)
        self._resting: list[Link] = []
        self._watch = watch
        self.brought = BroughtBatches()
        """Tally of the batches that the mesh's group might have brought."""
        self.change(parts)

    def change(self, parts: NodeParts, *, receives: bool = True) -> None:
        """Run the links of the present mesh from now on, except those that are held; none into this
        site unless `receives`, nor while the site quiesces.

        An unchanged link is not disturbed. A link that only carries something else keeps its
        connection; for any other change the link ends and a new one begins.
        """
        # With retired exchanges: their messages may still not cross the sites of never_via.
        mesh = self._mesh = parts.delivered_mesh()
        # Not those of retired exchanges: the group itself does not know of them.
        self._by_group = {
            name: parts.mesh.exchanges[name].lane
            for name in (group_exchanges(parts.mesh) if parts.mesh.group is not None else ())
        }
        self._group_ids = frozenset(mesh.sites[name].cluster_id for name in group_sites(mesh))
        self._book, self._authenticity = parts.book, parts.authenticity()
        self._absent = self._members.absent(mesh)
        is_open = receives and not parts.holds.quiescing
        into = self._strands(mesh.links_to(self._site)) if is_open else ()
        self._receivers.want({link: self._made_of(link, link.sender) for link in into})
        every = self._strands(mesh.links_from(self._site))
        self._warn_of_backlogs({link.line_name for link in every})
        self._resting = [link for link in every if link.line_name in parts.holds.links]
        out = [link for link in every if link.line_name not in parts.holds.links]
        self._senders.want({link: self._sender_made_of(link) for link in out}, every)
        self._look_at_rates()
        self._change_forwarding()
        for _, task in self._receivers:
            task.mesh_changed()

    def _strands(self, links: Iterable[Link]) -> list[Link]:
        """Strands of the links with an end in this slot; each runs as a link of its own."""
        return [
            one
            for link in links
            for one in self._mesh.strands(link)
            if one.slot_at(self._site) == self._slot
        ]

    def _warn_of_backlogs(self, names: Collection[str]) -> None:
        """Warn of links with a backlog that are to end, since none of them reports a gap later.
        Links in `names` stay; a neighbour that leaves the mesh needs no warning.
        """
        for link, task in self._senders:
            if link.line_name in names or link.receiver not in self._mesh.sites:
                continue
            if (lag := task.lag).messages:
                log.warning(
                    "the mesh file has no link %s any more, which had %d messages (%d bytes) before"
                    " it: they come by other ways, as far as the logs there still have them",
                    link.name,
                    lag.messages,
                    lag.bytes,
                    extra={"event": "link-taken-out", "link": link.name},
                )

    def go_on(self, name: str) -> None:
        """Resume the link of this name out of here; a person has accepted the gap at which it
        stands.
        """
        self._accepted_gaps[name] += 1
        every = self._strands(self._mesh.links_from(self._site))
        self._senders.want(
            {link: self._sender_made_of(link) for link in self._senders.links}, every
        )

    def _sender_made_of(self, link: Link) -> Hashable:
        return self._made_of(link, link.receiver), self._accepted_gaps[link.name]

    def _change_forwarding(self) -> None:
        for link, task in self._senders:
            task.change(forwarding_for(self._mesh, link, self._absent))

    def stages(self) -> Iterable[tuple[Stage, str]]:
        """Yield (stage, neighbour) of each link, for the ledger's idle rows; held links too, since
        a resting link is not a missing one.
        """
        for link in self._mesh.links_from(self._site):
            yield Stage.LINKED_OUT, link.receiver
        for link in self._mesh.links_to(self._site):
            yield Stage.LINKED_IN, link.sender

    async def run_receivers(self) -> None:
        await self._receivers.run()

    async def run_senders(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._note_times())
                group.create_task(self._senders.run())
        finally:
            for link in self._senders.links:
                self._uplink.forget(link)

    @property
    def blocked(self) -> bool:
        """True if the site's own broker takes no publishes of a link that meets there."""
        ends: list[tuple[Link, LinkReceiverTask | LinkSenderTask]] = [
            *self._receivers,
            *self._senders,
        ]
        return any(link.meeting == self._site and task.blocked for link, task in ends)

    @property
    def is_receiving(self) -> bool:
        """True while a link into this site runs or has not ended yet."""
        return self._receivers.is_busy

    def most_lagging(self) -> tuple[str, int]:
        """Neighbour whose log lacks the most, and the number of bytes; ("", 0) without links."""
        lags = [(link.receiver, task.lag.bytes) for link, task in self._senders]
        lags += [(link.receiver, self._resting_lag(link)[1]) for link in self._resting]
        return max(lags, key=lambda lag: lag[1], default=("", 0))

    def reached(self, link: Link) -> tuple[Place | None, Forwarding] | None:
        """Place up to which the link's sender believes the receiver's log complete, and what the
        link forwards; None without a session: the next session may begin anew.
        """
        for one, task in self._senders:
            if one == link and task.machine.heard_at is not None:
                return task.machine.place, task.machine.forwarding
        return None

    def reports(self) -> list[dict[str, Any]]:
        """Figures of the links that begin here."""
        now = self._clock.now()
        reports = [
            (link, sender_report(link, task, *self._watch.state_of(link, task, now)))
            for link, task in self._senders
        ]
        for link, report in reports:
            rate = self._uplink.rate(link)
            if rate is not None:
                report["max_rate"] = rate
        reports = [(link, report | self._connected_to(link)) for link, report in reports]
        reports += [
            (link, resting_report(link, *self._resting_lag(link))) for link in self._resting
        ]
        return reports_by_link(reports)

    def ack_delays(self) -> Iterator[tuple[tuple[str, str], DelaySnapshot]]:
        """Yield sender and receiver of each strand that begins here, and its delays of
        acknowledgements.
        """
        for link, task in self._senders:
            snapshot = task.machine.counters.ack_delays.snapshot()
            yield (link.sender, link.receiver), snapshot

    def incoming(self) -> list[dict[str, Any]]:
        """Figures of the links that end here."""
        return reports_by_link(
            (link, receiver_report(link, task) | self._connected_to(link))
            for link, task in self._receivers
        )

    def _connected_to(self, link: Link) -> dict[str, str]:
        """Entry of a link's report: the node in use of the meeting broker's cluster."""
        node = self._brokers.in_use().get(self._end_name(link))
        return {} if node is None else {"connected_to": node}

    def _end_name(self, link: Link) -> str:
        """Name by which the broker shows the connection of this site's end."""
        return f"isthmus link {link.name} at {self._site}"

    def not_understood(self) -> dict[str, str]:
        """Reasons, by neighbour, why nothing is taken from it: its batches have a newer version, or
        an origin or a key that only a newer mesh file has.
        """
        return {
            link.sender: task.machine.not_understood
            for link, task in self._receivers
            if task.machine.not_understood
        }

    def _resting_lag(self, link: Link) -> tuple[int, int]:
        kept = StateLinkMemory(self._state, link.name, link.receiver, self._clock).load()
        messages, nbytes = self._writer.lag(kept.place if kept else None)
        return messages, nbytes

    async def _note_times(self) -> None:
        """Note once a second how long the log was, from which the links' lag in seconds is
        computed.
        """
        while True:
            self._times.note(self._writer.counts.appended_messages, self._clock.now())
            self._watch.look(self._mesh, self._senders, self._receivers, self._clock.now())
            self._look_at_rates()
            await asyncio.sleep(ticks.about(1.0, asyncio.get_running_loop().time()))

    def _look_at_rates(self) -> None:
        """Take up the mesh file's rates of this hour, and which lanes have fallen behind."""
        minute = minute_of_day(self._clock.wall_ms())
        self._uplink.change(rates_at(self._mesh, self._site, minute))
        for link, task in self._senders:
            if link.max_rate is not None or self._mesh.sites[self._site].max_rate is not None:
                self._uplink.gate(link).behind(task.lag.seconds > BEHIND_S)

    def _made_of(self, link: Link, other: str) -> Hashable:
        """Return the parts of an end that cannot change while running."""
        mesh = self._mesh
        try:
            address: AmqpAddress | str = self._book.link_end(link, self._site)
        except (AddressError, PasswordMissing) as error:
            address = str(error)
        own, neighbour = mesh.sites[self._site].cluster_id, mesh.sites[other].cluster_id
        return link.meeting, own, neighbour, vouched_user(mesh, link, other), address

    def _link_parts(self, link: Link) -> LinkParts:
        return LinkParts(
            name=link.name,
            connector=PresentConnector(lambda: self._brokers.link(self._address(link))),
            writer=self._writer,
            clock=self._clock,
            random=self._random.random,
        )

    def _make_sender(self, link: Link) -> LinkSenderTask:
        state, voids = self._state, self._voids
        memory = StateLinkMemory(state, link.name, link.receiver, self._clock)
        self._gaps.pass_accepted(link, memory)
        receiver = self._mesh.sites[link.receiver].cluster_id
        trace = None if self._trace is None else LinkTrace(self._trace, receiver)

        def comes_otherwise(header: BatchHeader) -> bool:
            series = header.name.series
            return (
                self._by_group.get(series.exchange) == base_lane(series.lane)
                and series.origin in self._group_ids
                and self._mesh.sites[link.receiver].cluster_id in self._group_ids
            )

        def make_machine(safe_place: Callable[[Place | None], Place | None]) -> LinkSender:
            return LinkSender(
                forwarding=forwarding_for(self._mesh, link, self._absent),
                receiver_user=vouched_user(self._mesh, link, link.receiver),
                position=memory.load(),
                parts=SenderParts(
                    random=self._random.random,
                    random_bytes=self._random_bytes,
                    is_void=voids.is_void,
                    safe_place=safe_place,
                    members=self._members.encoded,
                    comes_otherwise=comes_otherwise,
                    trace=trace,
                ),
                settings=self._settings,
                formats=self._formats,
            )

        def on_gap(gap: LogGap) -> None:
            self._gaps.found(link, task, gap)

        task = LinkSenderTask(
            self._link_parts(link),
            make_machine,
            memory,
            self._times,
            voids.is_undecided,
            on_gap,
            self._neighbours.news,
            self._uplink.gate(link),
        )
        self._neighbours.link(link.name, task.machine.receiver_has)
        return task

    def _make_receiver(self, link: Link) -> LinkReceiverTask:
        state = self._state

        def on_linked(headers: Sequence[BatchHeader]) -> None:
            commit = Commit()
            now_ms = self._clock.wall_ms()
            for header in headers:
                if header.kind is not BatchKind.CANARY:
                    commit.row(linked_row(header, Stage.LINKED_IN, link.sender, now_ms))
                    if header.name.series.exchange in self._by_group:
                        self.brought.by_link(header.name, self._clock.now())
            state.write(commit)
            if self._by_group:
                self.have_otherwise([header.name for header in headers], but=link)

        machine = LinkReceiver(
            own=self._mesh.sites[link.receiver].cluster_id,
            neighbour=self._mesh.sites[link.sender].cluster_id,
            sender_user=vouched_user(self._mesh, link, link.sender),
            knows=self._members.knows,
            check=lambda header, batch: self._authenticity.check(header, batch),
            settings=self._settings,
            formats=self._formats,
        )
        return LinkReceiverTask(
            self._link_parts(link),
            machine,
            self._quarantine,
            on_linked,
            partial(self._learn, link),
        )

    def have_otherwise(
        self, names: Collection[BatchName], *, but: Link | None = None, by_group: bool = False
    ) -> None:
        """Inform the senders of all links into this site, but one, of batches that have come by
        another way, where they wait for that; `by_group`: by the mesh's group, just now.
        """
        mine = [name for name in names if name.series.exchange in self._by_group]
        if mine:
            for link, task in self._receivers:
                if link != but:
                    task.has_otherwise(mine, by_group=by_group)

    def _learn(self, link: Link, revision: str, sites: bytes) -> None:
        """Keep the sites of a revision, as announced by a neighbour whose batches bear the
        revision.
        """
        try:
            if not self._members.learn(revision, sites, self._clock.wall_ms()):
                return
        except (BadMembers, OSError) as error:
            # Batches of the revision are refused then; the link reports that and asks again.
            log.error(
                "link %s: the sites of revision %s: %s",
                link.name,
                revision,
                error,
                extra={"event": "revision-not-learned", "link": link.name},
            )
            return
        self._absent = self._members.absent(self._mesh)
        self._context.learn_absent(self._absent)
        self._change_forwarding()

    def _forget_position(self, link: Link) -> None:
        self._neighbours.unlink(link.name)
        self._uplink.forget(link)
        # If the link comes back, the receiver's names show what it has. With its old position, the
        # link would report a gap for entries that retention ate and other links carried.
        StateLinkMemory(self._state, link.name, link.receiver, self._clock).forget()

    def _address(self, link: Link) -> LinkEndAddress:
        """Address by which this site's end reaches the link's meeting broker."""
        names, receives = self._names, link.receiver == self._site
        amqp = self._book.link_end(link, self._site)
        data, acks = names.link_data(link), names.link_acks(link)
        return LinkEndAddress(
            uri=amqp.uri,
            user=amqp.user,
            sends_to=acks if receives else data,
            hears_from=data if receives else acks,
            queue=names.receiver_queue(link) if receives else names.sender_queue(link),
            is_receiver=receives,
            queue_bytes=2 * self._settings.window_bytes,
            is_cluster=self._book.mesh.sites[link.meeting].is_cluster,
            name=self._end_name(link),
            ssl_context=amqp.ssl_context,
            places=amqp.endpoints,
        )


class LinkGaps:
    """Gaps at which links out of one site stand: reported, and passed once a person has accepted
    them.
    """

    def __init__(self, gaps: SiteGaps, writer: LogWriter, state: NodeState, clock: Clock) -> None:
        self._gaps = gaps
        self._writer = writer
        self._state = state
        self._clock = clock

    def found(self, link: Link, task: LinkSenderTask, met: LogGap) -> None:
        """Report the gap at which the link stops."""
        gap = met.since(task.done_to)  # entries on their way may get lost as well
        now_ms = self._clock.wall_ms()
        commit = Commit()
        commit.row(gap_row(gap, Stage.LINKED_OUT, now_ms, neighbour=link.receiver))
        self._state.write(commit)
        self._gaps.found(
            OpenGap.of(
                gap,
                Stage.LINKED_OUT,
                now_ms,
                self._writer.names_lately(),
                lambda name: not task.machine.receiver_has(name),
                link=link.name,
                neighbour=link.receiver,
            )
        )

    def pass_accepted(self, link: Link, memory: StateLinkMemory) -> None:
        """Begin behind the gap at which the link stopped, if a person has accepted the gap."""
        accepted = self._gaps.accepted(f"link {link.name}")
        if accepted is None:
            return
        gap, kept = accepted.gap, memory.load()
        row = gap.accepted_row(accepted.by, accepted.at, self._clock.wall_ms())
        place = gap.end
        if kept is None:
            memory.begin(gap.first, row)
        elif kept.place is None or kept.place.offset < place.offset:
            memory.go_on(kept.behind(place, self._clock.now()), row)
        self._gaps.passed(accepted)
