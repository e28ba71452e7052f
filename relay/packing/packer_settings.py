"""What a packer is told: the site, its exchanges, sizes and times."""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.destinations import Addressing, addressing_of
from federation.mesh import OLDEST_BATCH_FORMAT, AckRule, ExchangeMode, IdentityRule, Mesh
from federation.names import Names
from relay.batches.batch import EVERY_SITE, MAX_ENTRIES
from relay.batches.signature import Signer


@dataclass(frozen=True, slots=True)
class PackedExchange:
    """One exchange whose messages leave this site."""

    name: str
    queue: str
    """Its egress queue."""
    lane: int = 0
    destinations: tuple[str, ...] = ()
    """Cluster IDs, sorted; empty for every site. Of all messages, unless there is `addressing`."""
    identity: IdentityRule = field(default_factory=IdentityRule)
    comes_round: bool = True
    """Whether the site's own deliveries come round through it: not in split mode."""
    addressing: Addressing | None = None
    """How destinations follow from keys; None where no site narrows it."""
    acks: AckRule = AckRule.LOCAL


@dataclass(frozen=True, slots=True)
class PackerSettings:
    """A site's packer. Times in seconds unless the name says otherwise."""

    cluster_id: str
    revision: str
    relay_user: str
    """Whom the site's deliverer logs in as: how its messages are known when they come round."""
    exchanges: tuple[PackedExchange, ...]
    former_users: tuple[str, ...] = ()
    """... and whom it did by earlier mesh files: what it delivered then may wait in egress yet."""
    batch_format: int = OLDEST_BATCH_FORMAT
    """What is written; all sites that a batch may come to read it."""
    signer: Signer | None = None
    """None: nothing is signed."""
    paused: bool = False
    """Take nothing from egress. What was taken and not acknowledged before is not forgotten."""
    linger_ms: float = 3.0
    """How long a batch waits for more: 5 ms costs 1.4 ms of p50 at 1000/s, saves 29 % of CPU. While
    the log has unconfirmed batches of the same flow it waits for those too. What comes after a
    pause of twice as long goes at once: at that pace nothing would join it."""
    batch_entries: int = MAX_ENTRIES
    batch_bytes: int = 256 * 1024
    in_hand_bytes: int = 8 * 1024 * 1024
    """Bodies taken off egress and not yet confirmed by the log, above which reading stops."""
    unconfirmed_bytes: int = 4 * 1024 * 1024
    """Encoded batches handed to the log and not yet confirmed."""
    settle_s: float = 1.0
    """Least wait between having the lock and acting on it: a former holder's last bytes."""
    patience_s: float = 1.0
    """How long a message that may have been logged waits for others to tell."""
    missing_retry_s: float = 5.0
    """Between looks for an egress queue that is not there."""
    stop_within_s: float = 5.0
    """For what is in hand to be confirmed at a stop; what is not comes again."""
    silence_s: float = 15.0
    """Nothing heard from the keeper of the lock for so long: it may be another's by now."""
    stall_s: float = 3.0
    """The process itself stood still for so long: the same."""

    @property
    def mark_destinations(self) -> tuple[str, ...]:
        """Cluster IDs of all sites that batches of this site may ever be for, as a destination set:
        marks go there and no further. With hundreds of shops that publish to a hub, each of
        their restarts would else be told to all others.
        """
        if any(exchange.destinations == EVERY_SITE for exchange in self.exchanges):
            return EVERY_SITE
        found = {one for exchange in self.exchanges for one in exchange.destinations}
        return tuple(sorted(found)) or (self.cluster_id,)


def packed_exchanges(mesh: Mesh, site: str) -> tuple[PackedExchange, ...]:
    """The exchanges whose messages leave `site`, in the mesh's order."""
    names = Names(mesh.name)
    return tuple(
        PackedExchange(
            exchange.name,
            names.egress(exchange.name),
            exchange.lane,
            mesh.destination_set(exchange),
            exchange.identity,
            exchange.mode is ExchangeMode.TRANSPARENT,
            addressing_of(mesh, exchange, site),
            exchange.acks,
        )
        for exchange in mesh.exchanges.values()
        if exchange.leaves(site)
    )
