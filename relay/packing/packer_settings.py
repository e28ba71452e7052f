"""Settings of a packer: the site, its exchanges, sizes and times."""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.destinations import Addressing, addressing_of
from federation.mesh import OLDEST_BATCH_FORMAT, AckRule, ExchangeMode, IdentityRule, Mesh
from federation.names import Names
from federation.partitions import partition_lane, partition_name, partition_of
from relay.batches.batch import EVERY_SITE, MAX_ENTRIES
from relay.batches.signature import Signer


@dataclass(frozen=True, slots=True)
class PackedExchange:
    """Exchange, or partition of an exchange, whose messages leave this site."""

    name: str
    queue: str
    """Name of the egress queue."""
    lane: int = 0
    """Number in the names of its batches: of its lane, and of the partition."""
    destinations: tuple[str, ...] = ()
    """Cluster IDs, sorted, of all messages unless `addressing`; empty: every site."""
    identity: IdentityRule = field(default_factory=IdentityRule)
    comes_round: bool = True
    """True if the site's own deliveries come round through the exchange: not in split mode."""
    addressing: Addressing | None = None
    """Derivation of destinations from keys, or None where no site narrows the exchange."""
    acks: AckRule = AckRule.LOCAL

    @property
    def partition(self) -> str:
        """Name of the partition, by which the packer's books have it."""
        return partition_name(self.name, partition_of(self.lane))


@dataclass(frozen=True, slots=True)
class PackerSettings:
    """Settings of a site's packer. Times in seconds unless the name differs."""

    cluster_id: str
    revision: str
    relay_user: str
    """User of the site's deliverer, by which its messages are recognised when they come round."""
    exchanges: tuple[PackedExchange, ...]
    former_users: tuple[str, ...] = ()
    """Users of the deliverer by earlier mesh files: their deliveries may still wait in egress."""
    batch_format: int = OLDEST_BATCH_FORMAT
    """Format of the batches written; all sites that may get a batch can read the format."""
    signer: Signer | None = None
    """Signer of batches, or None to sign nothing."""
    bodies_apart: bool = False
    """True to write the bodies of big messages apart from what is each message's own, for a content
    store to keep equal ones once."""
    paused: bool = False
    """True to take nothing from egress. Messages in hand before are not forgotten."""
    linger_ms: float = 3.0
    """Time for which a batch waits for more: 5 ms costs 1.4 ms of p50 at 1000/s, saves 29 % of CPU.
    While the log has unconfirmed batches of the same flow, the batch waits for those too. A message
    after a pause of twice as long goes at once: at that pace nothing would join."""
    batch_entries: int = MAX_ENTRIES
    batch_bytes: int = 256 * 1024
    in_hand_bytes: int = 8 * 1024 * 1024
    """Limit of bodies not yet confirmed by the log, above which reading stops."""
    unconfirmed_bytes: int = 4 * 1024 * 1024
    """Limit of encoded batches handed to the log and not yet confirmed."""
    settle_s: float = 1.0
    """Least wait between taking the lock and acting on it, for a former holder's last bytes."""
    patience_s: float = 1.0
    """Time for which a message that may have been logged waits for later messages to decide."""
    missing_retry_s: float = 5.0
    """Interval between looks for a missing egress queue."""
    stop_within_s: float = 5.0
    """Time at a stop for everything in hand to be confirmed; the rest comes again."""
    silence_s: float = 15.0
    """Silence of the lock's keeper from which on the lock may be another's."""
    stall_s: float = 3.0
    """Standstill of the process itself from which on the lock may be another's."""

    @property
    def mark_destinations(self) -> tuple[str, ...]:
        """Cluster IDs of all sites that may ever get batches of this site, as a destination set:
        marks go there and no further. With hundreds of shops that publish to a hub, each restart
        would otherwise travel to all others.
        """
        if any(exchange.destinations == EVERY_SITE for exchange in self.exchanges):
            return EVERY_SITE
        found = {cluster_id for exchange in self.exchanges for cluster_id in exchange.destinations}
        return tuple(sorted(found)) or (self.cluster_id,)


def packed_exchanges(mesh: Mesh, site: str) -> tuple[PackedExchange, ...]:
    """Return the partitions of the exchanges whose messages leave `site`, in the mesh's order."""
    names = Names(mesh.name)
    return tuple(
        PackedExchange(
            exchange.name,
            queue,
            partition_lane(exchange.lane, partition),
            mesh.destination_set(exchange),
            exchange.identity,
            exchange.mode is ExchangeMode.TRANSPARENT,
            addressing_of(mesh, exchange, site),
            exchange.acks,
        )
        for exchange in mesh.exchanges.values()
        if exchange.leaves(site)
        for partition, queue in enumerate(names.egress_queues(exchange))
    )
