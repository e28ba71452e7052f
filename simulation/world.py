"""Whole mesh in one event loop: brokers, links, nodes and applications."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from federation.brokers.addresses import AddressBook, PrivateBroker
from federation.brokers.credentials import make_credentials
from federation.mesh import LEAST_CONTENT_BYTES, Link, Mesh
from relay.links.forwarding import forwarding_for
from relay.links.transport.memory import MemoryLineSettings, MemoryMeeting
from relay.log.open_gap import OpenGap
from relay.node.report import link_reports
from relay.node.stages import Stages
from relay.operator.gaps import accept
from relay.packing.memory_egress import Returns
from simulation.applications import Applications
from simulation.group_network import GroupNetwork
from simulation.ledger_files import LedgerFiles
from simulation.load import Load
from simulation.losses import (
    EatenHead,
    MessageOf,
    egress_messages,
    in_part,
    lost_messages,
    messages_in,
    messages_to_send,
    names_of,
)
from simulation.memory_brokers import BrokerSlot, Crossing, Network, SiteBroker
from simulation.positions import CheckedLink, PositionChecks
from simulation.simulated_node import (
    SimulatedClock,
    SimulatedNode,
    SimulatedSite,
    SimulatedSlot,
)
from simulation.site_keys import environ_of
from simulation.site_servers import PACES, SiteServers
from simulation.trace import Trace

EPOCH_MS = 1_767_225_600_000
"""Wall time at the beginning of a simulation."""
DELAY_S = (0.001, 0.15)
"""Delay of a link, one way: from, to."""
LOOK_EVERY_S = 0.5


class NotInTime(Exception):
    """Condition that was not met within its time."""


class World:
    """Simulated mesh; `folder` holds the few files that nodes keep of their own."""

    def __init__(
        self,
        mesh: Mesh,
        folder: Path,
        chance: random.Random,
        returns: Returns = Returns.FIFO,
        nodes: int = 1,
        *,
        has_contents: bool = False,
    ) -> None:
        """`nodes` is the number of each site's; only of several may some keep large messages in a
        content store.
        """
        self._has_contents = has_contents
        if self._has_contents:
            mesh = _with_contents(mesh)
        self.mesh = self.first_mesh = mesh
        self.trace = Trace()
        self.applications = Applications(mesh, self.trace)
        self.chance = chance
        self.faults = 0
        """Number of faults drawn so far."""
        self._lost_tails: set[str] = set()
        """Names of the logs that have lost their end, or were made anew."""
        self._accepted: set[tuple[str, str, str]] = set()
        credentials = make_credentials(mesh)
        brokers = {site: PrivateBroker(1, 1, 1, vhost=site) for site in mesh.sites}
        self.book = AddressBook(mesh, credentials, brokers, environ_of(mesh))
        """Addresses of the mesh as its file is at present; nodes take the book up when they see it.
        """
        self.brokers = {
            site: SiteBroker(
                mesh,
                site,
                credentials,
                self.applications.listener(site),
                self.applications.refusals(site),
                returns=returns,
                chance=random.Random(f"returns {site}"),
            )
            for site in mesh.sites
        }
        self.logs = {slot.name: slot for one in self.brokers.values() for slot in one.slots}
        """Slots of all brokers, by the names of their logs."""
        self._heads = {name: EatenHead() for name in self.logs}
        self._come_again: dict[str, set[MessageOf]] = {name: set() for name in self.logs}
        """Messages that each log has lost, and should get back from its neighbours."""
        self.network = Network(
            mesh, self.brokers, [self._crossing(link) for link in _strands(mesh)]
        )
        self.sites = {
            site: SimulatedSite(
                name=site,
                network=self.network,
                ledgers=[LedgerFiles() for _ in self.brokers[site].slots],
                servers=SiteServers(
                    chance.choice(PACES), mesh.sites[site].slots.count, copies=1 + number % 2
                )
                if nodes > 1
                else None,
            )
            for number, site in enumerate(mesh.sites)
        }
        for slot in self.logs.values():
            servers = self.sites[slot.site].servers
            if servers is not None:
                slot.content = servers.content
                self.applications.bodies.fetch_at[slot.site] = slot.fetched
        self.nodes = {
            name: SimulatedNode(
                name,
                self.sites[site],
                self.book,
                folder / name,
                SimulatedClock(EPOCH_MS),
                random.Random(chance.getrandbits(64)),
            )
            for site in mesh.sites
            for name in _names_of_nodes(site, nodes)
        }
        """Nodes by name; the only one of a site has the site's."""
        self.group = self._group_network()
        """Network of the group; None in a world without one."""

        self.positions = PositionChecks(
            mesh,
            {name: slot.stream for name, slot in self.logs.items()},
            self.applications.has_come,
            self.trace,
        )
        for node in self.nodes.values():
            node.on_written = partial(self._look_at_deliverer, node)
        for site, broker in self.brokers.items():
            broker.on_step(partial(_step, self.nodes_of(site)))

    def _group_network(self) -> GroupNetwork | None:
        if self.mesh.group is None:
            return None
        network = GroupNetwork(self.nodes, random.Random(self.chance.getrandbits(64)))
        for node in self.nodes.values():
            node.join_group = partial(network.join, node.name)
        return network

    def nodes_of(self, site: str) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.home.name == site]

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def change(self, mesh: Mesh) -> None:
        """Change the mesh file: the same sites and exchanges, linked otherwise."""
        for link in _strands(mesh):
            if not self.network.has(link):
                self.network.add(self._crossing(link))
        if self._has_contents:
            mesh = _with_contents(mesh)
        self.mesh, self.book = mesh, replace(self.book, mesh=mesh)

    def _crossing(self, link: Link) -> Crossing:
        meeting = MemoryMeeting(asyncio.get_running_loop().call_later)
        meeting.on_heard = partial(self._look_at_link, link)
        line = MemoryLineSettings(delay_s=self.chance.uniform(*DELAY_S))
        return Crossing(link, meeting, line)

    def log_of(self, site: str, link: Link) -> BrokerSlot:
        """Return the slot of a site in whose log a strand of a link begins or ends."""
        return self.brokers[site].slots[link.slot_at(site)]

    def lose_tail(self, log: BrokerSlot, count: int) -> None:
        """Remove so many records from the end of a log whose broker is away."""
        self._about_to_lose(log, count)
        log.stream.lose_tail(count)

    def lose_log(self, log: BrokerSlot) -> None:
        """Delete a log."""
        self._about_to_lose(log, len(log.stream.records))
        log.stream.delete()

    def eat(self, log: BrokerSlot, keep: int) -> None:
        """Let retention eat a log, but for its last `keep` records.

        A log that has lost its end or was made anew stays whole: its former content is not known
        any more.
        """
        if log.name in self._lost_tails:
            return
        records = log.records
        self.trace.add("retention", log.name, f"all but {keep} records")
        first = records[-keep].offset
        self.positions.about_to_eat(log.name)
        eaten = [one for one in records if one.offset < first]
        self._heads[log.name].eaten(eaten)
        gone = set(lost_messages(eaten, len(eaten)))
        for other in self._neighbours_behind(log):
            # Messages that a neighbour's log has lost and not got back: nothing records any more
            # that they are missing there.
            has = other.records
            again = self._come_again[other.name] - set(lost_messages(has, len(has)))
            self.applications.destroyed |= gone & again
        log.stream.truncate_head(first)

    def _neighbours_behind(self, log: BrokerSlot) -> list[BrokerSlot]:
        """Return the logs that strands lead to from a log."""
        strands = self._strands_at(log, self.mesh.links_from(log.site))
        found = {one.name: one for one in (self.log_of(link.receiver, link) for link in strands)}
        return list(found.values())

    def _strands_at(self, log: BrokerSlot, links: Iterable[Link]) -> list[Link]:
        strands = (one for link in links for one in self.mesh.strands(link))
        return [one for one in strands if self.log_of(log.site, one) is log]

    def lose_content(self, site: str, chance: random.Random) -> None:
        """Let a site's content store lose a content."""
        servers = self.sites[site].servers
        if servers is None or not servers.content.chunks:
            return
        content_id = chance.choice(sorted(servers.content.chunks))
        self.trace.add("lost", site, f"content {content_id.hex()}")
        chunks = servers.content.chunks.pop(content_id)
        for log in self.brokers[site].slots:
            log.lost[content_id] = chunks

    async def operate(self) -> None:
        """Act for ever as an operator who accepts each reported gap and starts the nodes that
        stopped at one. Messages in an accepted gap may be missing.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for node in self.nodes.values():
                stopped = node.stopped_with
                is_read = stopped is not None or node.is_running
                standing = [(slot, gap) for slot in node.slots if is_read for gap in slot.open_gaps]
                for slot, gap in standing:
                    self._accept(node, slot, gap)
                if stopped is not None and standing:
                    node.bury()
                    node.start()

    def _accept(self, node: SimulatedNode, slot: SimulatedSlot, gap: OpenGap) -> None:
        log = self.brokers[node.home.name].slots[slot.number]
        which = node.name, log.name, gap.id
        if which in self._accepted:
            return
        self._accepted.add(which)
        self.trace.add("accepted", log.name, f"{gap.key}: {'; '.join(gap.missing())}")
        eaten = self._heads[log.name].between(gap.offset, gap.first)
        self.positions.accepted(log.name, (one.name for one in eaten))
        if gap.lost:
            self.positions.accepted(log.name, [gap.end.name])
            gone = messages_in(log.records, gap.end.name)
            self.applications.destroyed |= gone
            self.applications.moved |= gone
        for one in eaten:
            self.applications.destroyed |= one.messages
            # A second copy, made by a killed packer's successor, may stand behind later messages.
            self.applications.moved |= one.messages
        accept(slot.folder, gap, "operator", "now")

    def _about_to_lose(self, log: BrokerSlot, count: int) -> None:
        broker = self.brokers[log.site]
        origin = self.mesh.sites[log.site].cluster_id
        waiting = {
            message
            for exchange, queues in broker.exchanges.egress_of.items()
            for queue in queues
            for message in egress_messages(exchange, broker.egress.bodies(queue))
            if message[1] == origin  # others' messages come by delivery, and are not packed
        }
        records = log.records
        lost = set(lost_messages(records, count))
        gone = {one for one in lost if one[1] == origin} | (lost - self._neighbours_have(log))
        if count >= len(records):
            # Nothing is left either that would show the losses to retention before.
            eaten = self._heads[log.name].messages
            lost |= eaten
            gone |= {one for one in eaten if one[1] == origin}
        # A waiting message may be a second copy only, behind later ones than the first.
        self.applications.moved |= lost
        self.applications.destroyed |= gone - waiting
        self._come_again[log.name] |= lost
        self._lost_tails.add(log.name)
        names = names_of(records[len(records) - count :])
        self.positions.lost_at_origin(one for one in names if one.series.origin == origin)
        self.positions.about_to_lose(log.name)

    def _neighbours_have(self, log: BrokerSlot) -> set[MessageOf]:
        """Return the messages that come again from neighbours' logs: not the ones that retention
        has eaten there after they had gone over the link.
        """
        return {
            message
            for link in self._strands_at(log, self.mesh.links_to(log.site))
            for message in messages_to_send(
                self.log_of(link.sender, link).records, forwarding_for(self.mesh, link)
            )
        }

    async def publish(self, load: Load) -> None:
        async with asyncio.TaskGroup() as group:
            for broker in self.brokers.values():
                chance = random.Random(self.chance.getrandbits(64))
                group.create_task(self.applications.publish(broker, load, chance))

    async def until(
        self, condition: Callable[[], bool], lacks: Callable[[], str], within_s: float
    ) -> None:
        """Wait for a condition. Raise NotInTime with the text of `lacks`, or a node's error."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + within_s
        while not condition():
            self.raise_if_broken()
            if loop.time() > ends:
                raise NotInTime(f"after {within_s:g} s {lacks()}")
            await asyncio.sleep(LOOK_EVERY_S)

    def raise_if_broken(self) -> None:
        """Raise a violation of some step, or the error of a node that ended by itself."""
        in_group = None if self.group is None else self.group.broken
        for broken in (self.applications.broken, self.positions.broken, in_group):
            if broken is not None:
                raise broken
        for node in self.nodes.values():
            if node.stopped_with is None or not node.stands_at_a_gap:
                node.raise_if_ended()

    def _look_at_link(self, link: Link) -> None:
        log = self.log_of(link.sender, link)
        receiver = self.log_of(link.receiver, link).name
        for stages in self._at_work(log):
            reached = stages.links.reached(link)
            if reached is None:
                continue
            place, forwarding = reached
            writer, is_void = stages.writer, stages.context.voids.is_void
            place = writer.before_losses(place)
            is_known = writer.logged.__contains__
            self.positions.link(
                CheckedLink(link.name, log.name, receiver), place, is_void, is_known, forwarding
            )

    def _look_at_deliverer(self, node: SimulatedNode) -> None:
        for slot, log in zip(node.slots, self.brokers[node.home.name].slots, strict=True):
            if slot.stages is not None and node.owns(slot.number):
                context = slot.stages.context
                place = slot.stages.writer.before_losses(context.position)
                self.positions.deliverer(log.site, log.name, place, context.voids.is_void)

    def _at_work(self, log: BrokerSlot) -> list[Stages]:
        """Return the stages of a slot at the node that owns the slot."""
        owners = (one for one in self.nodes_of(log.site) if one.owns(log.number))
        found = (one.slots[log.number].stages for one in owners)
        return [stages for stages in found if stages is not None]

    def is_drained(self) -> bool:
        """True if every message is at every site, and none waits to be packed."""
        waiting = sum(broker.waiting for broker in self.brokers.values())
        return not waiting and not self.applications.missing()

    def left(self) -> str:
        """Describe the messages that have not come or wait to be packed."""
        missing = self.applications.missing()
        waiting = {site: one.waiting for site, one in self.brokers.items() if one.waiting}
        return f"messages have not come, by site: {missing}; wait in egress queues: {waiting}"

    def is_at_rest(self) -> bool:
        """True if all logs are settled and sent over all links."""
        return not self.before_nodes()

    def before_nodes(self) -> dict[str, str]:
        """Describe, by log, the part that is not settled, or not over a link."""
        found: dict[str, str] = {}
        for name, log in self.logs.items():
            if name in self._lost_tails:
                # While its log has only records from before the loss, a node counts all of them
                # once more, until a new one comes.
                continue
            slots = [one.slots[log.number] for one in self.nodes_of(log.site)]
            running = [one.node for one in slots if one.node and one.node.stages]
            if len(running) != 1:
                found[name] = f"{len(running)} of its nodes run"
                continue
            (node,) = running
            stages = node.stages
            assert stages is not None
            lag = stages.undelivered.messages
            if lag and in_part(log.records) & self.applications.destroyed:
                lag = 0  # the rest of that message comes no more, and only something newer ends it
            behind = [
                f"{one['to']}: {n}" for one in link_reports(node) if (n := one["lag_messages"])
            ]
            if lag or behind:
                standing = stages.deliverer.standing
                found[name] = f"undelivered {lag}, standing {standing}, to {behind}"
        return found

    async def stop(self) -> None:
        """Stop all nodes in order."""
        async with asyncio.TaskGroup() as group:
            for node in self.nodes.values():
                if node.is_running:
                    group.create_task(node.stop())

    async def kill(self) -> None:
        """Kill all nodes, and wait until the last one has ended."""
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
            await node.died()


def _names_of_nodes(site: str, nodes: int) -> list[str]:
    return [site] if nodes == 1 else [f"{site}-{number}" for number in range(1, nodes + 1)]


def _step(nodes: Iterable[SimulatedNode]) -> None:
    for node in nodes:
        node.step()


def _with_contents(mesh: Mesh) -> Mesh:
    """Return the mesh with every other site keeping its large messages in a content store."""
    sites = {
        name: replace(site, content_above=LEAST_CONTENT_BYTES) if number % 2 == 0 else site
        for number, (name, site) in enumerate(mesh.sites.items())
    }
    return replace(mesh, sites=sites)


def _strands(mesh: Mesh) -> list[Link]:
    return [one for link in mesh.links for one in mesh.strands(link)]


@contextmanager
def silence() -> Iterator[None]:
    """Suppress all log records of this process: in a simulation nodes' troubles are planned."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
