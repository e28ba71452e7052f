"""Factory of the stages of one site's node, from the present mesh."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dedup.barrier import Barrier
from federation.brokers.addresses import AddressBook, Listener, relay_user
from federation.mesh import SIGNED_BATCH_FORMAT, Mesh, SigningRule
from federation.names import Names
from federation.partitions import partition_of
from federation.signing_keys import (
    PrivateKeyUnusable,
    key_id,
    load_private_key,
    parse_public_key,
    public_key_text,
)
from relay.batches.incarnation import VoidTable
from relay.batches.known_formats import Formats
from relay.batches.signature import Authenticity, Signer, authenticity
from relay.bulk_amqp import Connection as BulkConnection
from relay.content.content_log import ContentLog
from relay.delivery.context import (
    POSITION,
    DeliveredBefore,
    DeliveryContext,
    DeliveryCounters,
    DeliverySettings,
    GapBook,
    all_of,
)
from relay.delivery.delays import DeliveryDelays
from relay.delivery.deliverer import DeliveryConnection
from relay.delivery.local_exchange import LocalExchange
from relay.delivery.settlement import Settlement
from relay.ledger.members import Absent
from relay.links.neighbour_logs import NeighbourLogs
from relay.links.uplink import Uplink
from relay.log.run import LogEvents
from relay.log.site_log import SiteLog
from relay.log.writer import LogWriter
from relay.node.bindings import StateLogMemory, StatePackedLedger
from relay.node.brokers import Brokers, RabbitBrokers
from relay.node.machine import Machine, this_machine
from relay.operator.holds import Holds
from relay.packing.egress import Egress
from relay.packing.packer_loop import PackerLoop
from relay.packing.packer_parts import PackerParts
from relay.packing.packer_settings import PackedExchange, PackerSettings, packed_exchanges
from relay.state.flow_state import ANNOUNCED_AT_MOST, ANNOUNCED_BY_NODES
from relay.state.node_state import STATE, Loaded, NodeState
from relay.tracing.batch_trace import BatchTrace
from relay.waiters import Signal

PAUSED = "the site is paused: `isthmus resume` lets it go on"
SETTLE_S = 1.0
"""Time for which the deliverer's lock is held before use."""


def same_broker(former: AddressBook, new: AddressBook, site: str) -> bool:
    """True if both books lead to the site's broker in the same way. Raises AddressError,
    PasswordMissing.
    """
    return _addresses(former, site) == _addresses(new, site)


def check_addresses(book: AddressBook, site: str) -> None:
    """Check that everything is there to connect to the site's own broker. Raises AddressError,
    PasswordMissing.
    """
    for address in _addresses(book, site):
        _ = address.ssl_context


def _addresses(book: AddressBook, site: str) -> tuple[Listener, ...]:
    """Addresses that the stages of a site use."""
    return book.deliverer(site), book.packer(site), book.keeper(site), book.stream(site)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryParts:
    """Parts of one run that the deliverer works with; see `DeliveryContext` for each."""

    state: NodeState
    loaded: Loaded
    writer: LogWriter
    voids: VoidTable
    absent: Absent
    gaps: GapBook | None = None
    delivered_before: DeliveredBefore = all_of
    clock_differences_ms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Factory of one node's stages. `retired` are earlier meshes, the latest first, with exchanges
    that the present mesh lacks: messages waiting for these are packed and delivered as intended
    then.
    """

    site: str
    book: AddressBook
    retired: Sequence[Mesh]
    holds: Holds
    log_is_full: bool
    """True while none of the site's own messages are let into the log."""
    counters: DeliveryCounters
    formats: Formats
    """Formats that the node reads."""
    signer: Signer | None = None
    machine: Machine = field(default_factory=this_machine)
    brokers: Brokers = field(default_factory=RabbitBrokers)
    lately: Sequence[Mesh] = ()
    """Earlier meshes under which batches were signed that may still be on their way."""
    slot: int = 0
    """Slot of the site that the node serves."""
    uplink: Uplink = field(default_factory=lambda: Uplink(time.monotonic))
    """Gates of what the site sends."""
    delays: DeliveryDelays = field(default_factory=DeliveryDelays)
    trace: BatchTrace | None = None
    """Reports of batches on their way, or None while nothing is traced."""

    @property
    def mesh(self) -> Mesh:
        return self.book.mesh

    @property
    def names(self) -> Names:
        return Names(self.mesh.name, self.slot)

    @property
    def cluster_id(self) -> str:
        return self.mesh.sites[self.site].cluster_id

    @property
    def user(self) -> str:
        """Name of the deliverer's user at the site's broker; needs no password."""
        return relay_user(self.mesh, self.site)

    @property
    def window_ms(self) -> int:
        return int(self.mesh.retention_s * 1000)

    def packer_settings(self) -> PackerSettings:
        """Settings of the packer, retired exchanges last."""
        packed: dict[str, PackedExchange] = {}
        slots = self.mesh.sites[self.site].slots
        for mesh in (self.mesh, *self.retired):
            if self.site not in mesh.sites:
                continue
            for exchange in packed_exchanges(mesh, self.site):
                packed.setdefault(exchange.partition, exchange)
        former = {relay_user(mesh, self.site) for mesh in self.retired if self.site in mesh.sites}
        batch_format = min(self.mesh.batch_format, self.formats.newest_batch)
        return PackerSettings(
            cluster_id=self.cluster_id,
            revision=self.mesh.revision,
            relay_user=self.user,
            exchanges=tuple(
                exchange
                for exchange in packed.values()
                if slots.of(exchange.name, partition_of(exchange.lane)) == self.slot
            ),
            former_users=tuple(sorted(former - {self.user})),
            batch_format=batch_format,
            signer=self.signer if batch_format >= SIGNED_BATCH_FORMAT else None,
            paused=not self.holds.takes_egress or self.log_is_full,
            bodies_apart=self.mesh.sites[self.site].content_above is not None,
        )

    @property
    def egress_queues(self) -> tuple[str, ...]:
        """Egress queues of all packed exchanges."""
        return tuple(exchange.queue for exchange in self.packer_settings().exchanges)

    def delivered_mesh(self) -> Mesh:
        """Mesh together with its former exchanges."""
        exchanges = dict(self.mesh.exchanges)
        for mesh in self.retired:
            for exchange in mesh.exchanges.values():
                exchanges.setdefault(exchange.name, exchange)
        return replace(self.mesh, exchanges=exchanges)

    def authenticity(self) -> Authenticity:
        """Signatures required of batches that come over links."""
        # Retired exchanges too: their messages are still delivered.
        return authenticity(self.delivered_mesh(), self.lately)

    @property
    def held(self) -> str:
        """Reason why nothing is delivered; empty while messages are delivered."""
        return PAUSED if self.holds.paused else ""

    def writer(self, state: NodeState, events: LogEvents) -> LogWriter:
        return LogWriter(
            self.open_log,
            StateLogMemory(state),
            events,
            origin=self.cluster_id,
            formats=self.formats,
            random_bytes=self.machine.random_bytes,
            jitter=self.machine.random.random,
        )

    def packer(
        self,
        state: NodeState,
        writer: LogWriter,
        voids: VoidTable,
        neighbours: NeighbourLogs,
    ) -> PackerLoop:
        machine = self.machine
        now_ms = machine.clock.wall_ms

        async def connect_packer() -> Egress:
            return await self.brokers.open_egress(self.book, self.site)

        async def former_gone() -> bool:
            # An exclusive queue ends with its connection; the settling time does the rest.
            return True

        parts = PackerParts(
            connect_packer,
            writer,
            StatePackedLedger(state, now_ms),
            voids,
            now_ms,
            machine.random_bytes,
            former_gone,
            machine.boot_id(),
            neighbours,
            state.was_clean,
            machine.shares_power,
            state.was_answered,
        )
        return PackerLoop(self.packer_settings(), parts, machine.random)

    def context(self, given: DeliveryParts) -> tuple[DeliveryContext, DeliveryConnection]:
        """Make what the deliverer's flows share, and the deliverer's connection."""
        names, chance = self.names, self.machine.random.random
        stopping = Signal()

        async def connect_deliverer() -> LocalExchange:
            return await self.brokers.open_exchange(self.book, self.site)

        connection = DeliveryConnection(
            connect_deliverer,
            stopping,
            chance,
            SETTLE_S,
            was_answered=given.state.was_answered,
        )
        barrier = Barrier(given.state.store, self.window_ms, meta_table=STATE)
        position = given.loaded.positions.get(POSITION)
        own = self.mesh.sites[self.site]
        context = DeliveryContext(
            settings=DeliverySettings(
                site=self.site,
                cluster_id=self.cluster_id,
                user=self.user,
                dead_letter_queue=names.dead_letters,
                quarantine_queue=names.quarantine,
                announced_at_most=ANNOUNCED_AT_MOST if own.nodes is None else ANNOUNCED_BY_NODES,
            ),
            mesh=self.delivered_mesh(),
            log=given.writer,
            state=given.state,
            settled=given.loaded.settled,
            barrier=barrier,
            voids=given.voids,
            settlement=Settlement(position),
            counters=self.counters,
            stopping=stopping,
            now_ms=self.machine.clock.wall_ms,
            random=chance,
            exchange=connection.exchange,
            open_exchange=connection.open_exchange,
            window_ms=barrier.memory_ms,
            position=position,
            flows=dict(given.loaded.flows),
            deferred={flow: dict(batches) for flow, batches in given.loaded.deferred.items()},
            delivered_before=given.delivered_before,
            absent=given.absent,
            gaps=given.gaps,
            clock_differences_ms=given.clock_differences_ms,
            delays=self.delays,
            trace=self.trace,
            contents=self.machine.contents,
        )
        context.hold(self.held)
        return context, connection

    async def connect(self, purpose: str) -> BulkConnection:
        """Connect to the site's own broker for a purpose of the node itself."""
        return await self.brokers.connect(self.book, self.site, purpose)

    async def open_log(self) -> SiteLog:
        """Open a new connection to the site's log."""
        opened = await self.brokers.open_log(self.book, self.site)
        contents = self.machine.contents
        return opened if contents is None else ContentLog(opened, contents)


def signer_of(book: AddressBook, site: str) -> Signer | None:
    """Return the signer with the site's private key, or None where the site signs nothing. Raises
    PrivateKeyUnusable, also for a key whose public half is not in the mesh file: nobody would take
    what was signed with it.
    """
    mesh = book.mesh
    here = mesh.sites[site]
    if mesh.signing is SigningRule.NONE or not here.public_keys:
        return None
    private = load_private_key(here.private_key, book.environ)
    signer = Signer.of(mesh.name, private)
    if signer.id not in {key_id(parse_public_key(one)) for one in here.public_keys}:
        raise PrivateKeyUnusable(
            here.private_key,
            f"it is another one than those that the mesh file has of {site}: its public key is "
            f"{public_key_text(private.public_key())}",
        )
    return signer
