"""The declared mesh as frozen values, the input of everything else. Reads and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from federation.lanes import NORMAL, NORMAL_NUMBER, Lane, RateSchedule
from federation.partitions import partition_name
from federation.slots import ONE_SLOT, SlotMap, SlotPair, slot_pairs

RETENTION_MARGIN_S = 900.0
"""Least time that data is kept beyond the outage window."""

OLDEST_BATCH_FORMAT = 1
NEWEST_BATCH_FORMAT = 2
"""Oldest and newest batch format that this version reads: its own and the one before. See the
drawing in `relay.batches.format`.
"""
SIGNED_BATCH_FORMAT = 2
"""First format with room for a signature."""

LINE_AVAILABILITY = 0.99
"""Default availability of a link: three and a half days a year away."""


def retention_s(outage_window_s: float) -> float:
    """Return the time (s) that data is kept for an outage window."""
    return outage_window_s + max(RETENTION_MARGIN_S, 0.1 * outage_window_s)


class ForwardingRule(StrEnum):
    """Rule by which loops are broken. Any graph but the complete one uses the ring's rule."""

    RING = "ring"
    """Pass on to a neighbour that is not on the path yet."""
    COMPLETE = "complete"
    """Pass on nothing; the origin alone sends."""


class ExchangeMode(StrEnum):
    """Exchange that a site's consumers bind to."""

    TRANSPARENT = "transparent"
    """Publish to and bind to the same exchange."""
    SPLIT = "split"
    """Publish to `name`, bind to `name.in`; nothing comes round."""


class IdentityKind(StrEnum):
    """Property that makes two messages the same."""

    UUID = "uuid"
    """`message_id` if it is a UUID or its URN; any other message is unique."""
    MESSAGE_ID = "message_id"
    HEADER = "header"
    CONTENT = "content"
    NONE = "none"


class IdentityScope(StrEnum):
    """Scope in which an identity is unique."""

    MESH = "mesh"
    ORIGIN = "origin"


class OrderRule(StrEnum):
    STRICT = "strict"
    BEST_EFFORT = "best_effort"


class LargeRule(StrEnum):
    """Form in which consumers get a large message, at a site with a content store."""

    BODY = "body"
    REFERENCE = "reference"
    """No body, and headers by which `isthmus content get` fetches the body."""


class AckRule(StrEnum):
    """Moment at which a publisher's message counts as taken from egress."""

    LOCAL = "local"
    """The site's own log has the message."""
    REMOTE = "remote"
    """A neighbour's log has the message too: survives the loss of the site's whole broker."""


class PriorityRule(StrEnum):
    """Rule for publishers' `priority` among messages that wait in egress."""

    KEEP = "keep"
    """Leave the order to a quorum queue: RabbitMQ 3 ignores priorities, RabbitMQ 4 hands out the
    highest first.
    """
    ORDER = "order"
    """Keep the order of publishing: egress is a classic queue, on one broker node, without
    priorities.
    """


class WhenLogIsFull(StrEnum):
    """Action when the log holds `max_bytes` that are still needed."""

    BLOCK = "block"
    """Take nothing more: egress queues grow, neighbours wait."""
    GAP = "gap"
    """Drop the oldest; readers that needed it stop and report `gap`."""


class SigningRule(StrEnum):
    """Site that answers for a batch's content."""

    NONE = "none"
    """The neighbour that sent the batch."""
    ED25519 = "ed25519"
    """The batch's origin, by its signature."""


class Unsigned(StrEnum):
    """Treatment of a batch without signature, where batches are signed."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    """Setting of a mesh that begins to sign, whose logs still have batches from before."""


class Begins(StrEnum):
    """Start of a site that joins a running mesh."""

    NOW = "now"
    """Begin with the messages that each origin packs once it knows of the site."""
    START = "start"
    """Begin with the messages for every site that the logs still hold."""


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """Identity of an exchange's messages. `header` names the header for `IdentityKind.HEADER`, and
    is empty otherwise.
    """

    kind: IdentityKind = IdentityKind.UUID
    header: str = ""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """Attempts and waits (s) before a refused message becomes a dead letter."""

    max_attempts: int = 5
    backoff_first_s: float = 0.2
    backoff_most_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """An AMQP exchange that the mesh spans. `origins` and `destinations` are site names, or None
    for all.
    """

    name: str
    type: str = "topic"
    keys: tuple[str, ...] = ("#",)
    """Binding keys of the messages that leave a site; fanout and headers exchanges have none: all
    leave.
    """
    origins: tuple[str, ...] | None = None
    destinations: tuple[str, ...] | None = None
    mode: ExchangeMode = ExchangeMode.TRANSPARENT
    identity: IdentityRule = IdentityRule()
    scope: IdentityScope = IdentityScope.MESH
    order: OrderRule = OrderRule.STRICT
    retry: RetryRule = RetryRule()
    lane: int = NORMAL_NUMBER
    """Number of its lane."""
    partitions: int = 1
    """Number of egress queues among which its messages are spread by their keys."""
    never_via: tuple[str, ...] = ()
    """Sites that must never hold its messages, not even on the way."""
    acks: AckRule = AckRule.LOCAL
    priorities: PriorityRule = PriorityRule.KEEP
    deadline_s: float | None = None
    """Limit from publishing to delivery; a later delivery is a finding of the audit."""
    large: LargeRule = LargeRule.BODY

    def leaves(self, site: str) -> bool:
        """Return True if messages published at `site` go out."""
        return site not in self.never_via and (self.origins is None or site in self.origins)

    def reaches(self, site: str) -> bool:
        """Return True if `site` delivers the exchange's messages."""
        return site not in self.never_via and (
            self.destinations is None or site in self.destinations
        )

    @property
    def partition_names(self) -> tuple[str, ...]:
        """Names of its partitions, in order; its own where it has no partitions."""
        return tuple(partition_name(self.name, number) for number in range(self.partitions))

    @property
    def delivers_to(self) -> str:
        """Name of the exchange that the deliverer publishes to."""
        return f"{self.name}.in" if self.mode is ExchangeMode.SPLIT else self.name


class BrokerAuth(StrEnum):
    """Proof by which a client logs in as the user of a broker's address."""

    PASSWORD = "password"
    EXTERNAL = "external"
    """The client's certificate (SASL EXTERNAL), from which the broker takes the user's name."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Absolute paths of PEM files; empty: the system's authorities, no certificate of Isthmus."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """Access to a node's admin port from other machines, for either side."""

    token: str = ""
    """`env:NAME` or `file:PATH`; empty: access from the node's own machine only."""
    tls: TlsFiles = TlsFiles()
    """`ca`: authorities that clients trust; `certificate` and `key`: the node's own, empty if a
    proxy with a certificate stands before the node.
    """


LOCAL_ADMIN = AdminAccess()
"""Access on loopback, for any program of the node's machine."""

SYSTEM_TRUST = TlsFiles()
"""The system's authorities, no certificate."""


@dataclass(frozen=True, slots=True)
class LogLimit:
    """Disk that a site's log may take. `max_bytes` None: as much as the outage window needs."""

    max_bytes: int | None = None
    on_full: WhenLogIsFull = WhenLogIsFull.BLOCK


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Addresses of a site's broker, as the mesh file gives them. Passwords are resolved elsewhere.

    A cluster has several addresses of each kind. The first is a field of its own, so that mesh
    documents from before lists stay readable.
    """

    amqp: str
    """`amqp[s]://user@host[:port]/vhost`, without password."""
    stream: str
    """`rabbitmq-stream[+tls]://host:port`."""
    password: str
    """`env:NAME`, `file:PATH`, or the password itself (with a warning); empty where none is
    needed.
    """
    management: str | None = None
    """`http[s]://host:port`, for objects that AMQP cannot declare (users, policies); None if not
    given.
    """
    tls: TlsFiles = SYSTEM_TRUST
    auth: BrokerAuth = BrokerAuth.PASSWORD
    """Login by AMQP, and by streams if there is no password. The management API takes passwords
    only.
    """
    separate_users: bool = False
    """True if each purpose of the site's node logs in as a user of its own, which `apply` makes."""
    more_amqp: tuple[str, ...] = ()
    """Further nodes of the cluster, with the user and virtual host of `amqp`."""
    more_streams: tuple[str, ...] = ()
    more_managements: tuple[str, ...] = ()

    @property
    def amqps(self) -> tuple[str, ...]:
        """AMQP addresses of all nodes, in the order of the file."""
        return self.amqp, *self.more_amqp

    @property
    def streams(self) -> tuple[str, ...]:
        """Stream addresses of all nodes."""
        return self.stream, *self.more_streams

    @property
    def managements(self) -> tuple[str, ...]:
        """Management addresses of all nodes; none if not given."""
        return () if self.management is None else (self.management, *self.more_managements)


NO_MULTICAST = "none"
"""Word for a site that is no member of its mesh's multicast group."""

LEAST_CONTENT_BYTES = 700 * 1024
"""Size from which a message travels in pieces, of which alone a content store has the bytes."""

DATACENTER = "datacenter1"
"""Name of the data centre of a Cassandra that was told no other."""


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Cassandra in which the nodes of a site keep their journal."""

    hosts: tuple[str, ...]
    """HOST:PORT of some of its nodes, which name the others; none: the private one of `isthmus up`.
    """
    datacenter: str
    keyspace: str
    replication: int = 3
    user: str = ""
    """Empty: no password is asked for."""
    password: str = ""
    """`env:NAME` or `file:PATH`."""
    tls: TlsFiles | None = None
    """Files for TLS; None: in clear."""


@dataclass(frozen=True, slots=True)
class EnsemblePlace:
    """ZooKeeper ensemble through which the nodes of a site find each other."""

    hosts: tuple[str, ...]
    """HOST:PORT of each member; none: the private one of `isthmus up`."""
    user: str = ""
    """Empty: entries are open to everybody."""
    password: str = ""
    """`env:NAME` or `file:PATH`."""
    tls: TlsFiles | None = None
    """Files for TLS; None: in clear."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of a site that take over from each other, and what they share."""

    zookeeper: EnsemblePlace
    cassandra: JournalPlace
    names: tuple[str, ...] = ()
    """Names of the nodes; none: any."""
    session_s: float = 2.0
    """Time after which a node that ZooKeeper does not hear from counts as gone."""
    copies: int = 2
    """Number of nodes that keep a copy of a slot's state, beside the slot's owner."""

    @property
    def has_private_servers(self) -> bool:
        """True if `isthmus up` runs the ZooKeeper and the Cassandra."""
        return not self.zookeeper.hosts


EACH_NODE = "{node}"
"""Part of an admin address that stands for the name of each of a site's nodes."""


@dataclass(frozen=True, slots=True)
class Site:
    """A broker cluster and virtual host. Without `broker`, `isthmus up` runs a private one."""

    name: str
    cluster_id: str
    broker: BrokerAddress | None = None
    tags: tuple[str, ...] = ()
    wants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Exchange -> topic patterns of the messages that this site takes; an exchange without entry is
    taken whole.
    """
    availability: float = 1.0
    """Part of the time that its broker and node work, 0 to 1."""
    log: LogLimit = LogLimit()
    admin: str | None = None
    """`http[s]://host:port` of its node's admin port, perhaps with EACH_NODE; None: on loopback
    only.
    """
    admin_access: AdminAccess = LOCAL_ADMIN
    begins: Begins = Begins.NOW
    public_keys: tuple[str, ...] = ()
    """Public keys of its signatures, as `federation.signing_keys` writes them: one, or two during a
    change of keys.
    """
    private_key: str = ""
    """`env:NAME` or `file:PATH`, where its node finds the key that it signs with."""
    link_password: str | None = None
    """`env:NAME` or `file:PATH`: password of its node at other sites' own brokers, as the user of
    its link ends; None: its node logs in there as that broker's own user.
    """
    max_rate: RateSchedule | None = None
    """Limit of all links out of it together."""
    brokers: int = 1
    """Number of nodes of its private cluster; an own broker's nodes are not counted here."""
    replicas: int | None = None
    """Members of each relay queue and of the log; None: one for each broker node."""
    nodes: NodeGroup | None = None
    """Nodes of the site, if it has several; else its one node has the state on its own disk."""
    slots: SlotMap = ONE_SLOT
    """Slots that the site's work is cut into."""
    content_above: int | None = None
    """Size in bytes above which messages are kept in the content store of its `nodes`, and not in
    its log; None: no messages are.
    """
    multicast: str = ""
    """Address of its interface for the mesh's multicast group; empty: as its machine routes;
    NO_MULTICAST: it is no member.
    """

    def admin_of(self, node: str) -> str | None:
        """Return the admin address of one of the site's nodes; empty name: of its only one."""
        return self.admin and self.admin.replace(EACH_NODE, node)

    @property
    def far_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that can be asked each at its own admin address."""
        has_own = self.nodes is not None and self.admin is not None and EACH_NODE in self.admin
        return self.nodes.names if self.nodes is not None and has_own else ()

    @property
    def is_cluster(self) -> bool:
        """True if the file gives the site's broker several nodes."""
        has_several = self.broker is not None and bool(self.broker.more_amqp)
        return has_several or self.brokers > 1 or (self.replicas or 1) > 1


@dataclass(frozen=True, slots=True)
class Link:
    """A directed connection from site to neighbour. All three are site names.

    Both ends connect to the broker of `meeting`. `via` is `host:port` to dial instead of that
    broker's own address (a port forward, a tunnel, the WAN proxy), only for the end that is not the
    meeting site's own.
    """

    sender: str
    receiver: str
    meeting: str
    via: str | None = None
    availability: float = LINE_AVAILABILITY
    """Part of the time that its line works, 0 to 1."""
    max_rate: RateSchedule | None = None
    lane: str = ""
    """Lane of a link that carries this lane alone. Empty for the link itself, which carries the
    normal lane, and all messages in a mesh without lanes.
    """
    slots: SlotPair | None = None
    """Slots between which a strand runs; None between sites of one slot each."""

    @property
    def name(self) -> str:
        return f"{self.line_name}{self.strand}"

    @property
    def strand(self) -> str:
        """End of the name, by which strands of one link differ; empty for the link itself."""
        return "".join(f".{part}" for part in (self.lane, self.slots) if part)

    def slot_at(self, site: str) -> int:
        """Return the slot of the strand's end at one of its two sites."""
        if self.slots is None:
            return 0
        return self.slots.sender if site == self.sender else self.slots.receiver

    @property
    def line_name(self) -> str:
        """Name for people, the same for all lanes of the link."""
        return f"{self.sender}-{self.receiver}"


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """IP multicast group before a mesh's links, by which a batch comes to all sites at once."""

    address: str
    port: int
    keys: tuple[str, ...]
    """`env:NAME` or `file:PATH` of the group's key, or of two: the first seals."""
    rate: int
    """Most bytes a second of each site."""
    replayers: tuple[str, ...]
    """Sites that each other site is linked with, and that answer for what a site lacks, by rank."""
    mtu: int
    """Most bytes of a datagram."""
    ttl: int
    """Number of routers that pass a datagram on."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """The whole federation in one state of its file; `revision` is a hash of that state."""

    name: str
    revision: str
    outage_window_s: float
    rule: ForwardingRule
    sites: Mapping[str, Site]
    exchanges: Mapping[str, Exchange]
    links: tuple[Link, ...]
    cluster_ids: Mapping[str, str] = field(default_factory=dict)
    """Cluster ID -> site name."""
    batch_format: int = OLDEST_BATCH_FORMAT
    """Format that packers write, which every site's node must read."""
    signing: SigningRule = SigningRule.NONE
    unsigned: Unsigned = Unsigned.REFUSE
    repairers: tuple[str, ...] | None = None
    """Sites whose repairs other sites accept, although a repair sends in the names of others; None:
    all.
    """
    revoked_keys: tuple[str, ...] = ()
    """Public keys that are no longer secret: batches signed with them are refused."""
    lanes: tuple[Lane, ...] = ()
    """Lanes, the most urgent first; empty: all messages share one way."""
    group: MulticastGroup | None = None
    """Multicast group before the links; None: there is none."""

    @property
    def retention_s(self) -> float:
        """Time (s) that a log and the barrier's memory are kept: the window plus a margin, so that
        a link away for just the window does not race against retention.
        """
        return retention_s(self.outage_window_s)

    def repairs_for_others(self, site: str) -> bool:
        """Return True if other sites accept the messages that `site` sends again for any origin."""
        return self.repairers is None or site in self.repairers

    def links_from(self, site: str) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.sender == site)

    def links_to(self, site: str) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.receiver == site)

    def strands(self, link: Link) -> tuple[Link, ...]:
        """Return the links that carry parts of a link, for each lane in the order of the lanes, and
        for each pair of slots; the link itself where there are none of either.
        """
        lanes = ["" if lane.name == NORMAL else lane.name for lane in self.lanes] or [""]
        sites = self.sites
        pairs = slot_pairs(sites[link.sender].slots, sites[link.receiver].slots) or (None,)
        return tuple(
            replace(link, lane=lane, slots=pair) if lane or pair else link
            for lane in lanes
            for pair in pairs
        )

    @property
    def last_lane(self) -> int | None:
        """Number of the least urgent lane, which messages sent again take; None without lanes."""
        return self.lanes[-1].number if self.lanes else None

    def destination_set(self, exchange: Exchange) -> tuple[str, ...]:
        """Return sorted cluster IDs that the exchange's batches are for; empty for every site.

        An exchange with `never_via` names all other sites, so that its batches are not for the
        excluded sites when a later file allows them, nor at a node without the present file.
        """
        if exchange.destinations is None and not exchange.never_via:
            return ()
        return tuple(
            sorted(site.cluster_id for name, site in self.sites.items() if exchange.reaches(name))
        )
