"""The declared mesh as frozen values: what everything else is told. Reads and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from federation.lanes import NORMAL, NORMAL_NUMBER, Lane, RateSchedule

RETENTION_MARGIN_S = 900.0
"""The least time that things are kept beyond the outage window."""

OLDEST_BATCH_FORMAT = 1
NEWEST_BATCH_FORMAT = 2
"""Of those that this version of the program reads: its own, and the one before. See the drawing in
`relay.batches.format`."""
SIGNED_BATCH_FORMAT = 2
"""The first one that has room for a signature."""

LINE_AVAILABILITY = 0.99
"""Of a link, where the file says nothing: three and a half days a year away."""


def retention_s(outage_window_s: float) -> float:
    """How long things are kept for a window of that many seconds."""
    return outage_window_s + max(RETENTION_MARGIN_S, 0.1 * outage_window_s)


class ForwardingRule(StrEnum):
    """How loops are broken. Any graph but the complete one uses the ring's rule."""

    RING = "ring"
    """Pass on to a neighbour that is not on the path yet."""
    COMPLETE = "complete"
    """Only the origin sends."""


class ExchangeMode(StrEnum):
    """Where a site's consumers bind."""

    TRANSPARENT = "transparent"
    """Publish to and bind to the same exchange."""
    SPLIT = "split"
    """Publish to `name`, bind to `name.in`; nothing comes round."""


class IdentityKind(StrEnum):
    """What makes two messages the same."""

    UUID = "uuid"
    """`message_id` where it is a UUID; others are each their own."""
    MESSAGE_ID = "message_id"
    HEADER = "header"
    CONTENT = "content"
    NONE = "none"


class IdentityScope(StrEnum):
    """Within what an identity is unique."""

    MESH = "mesh"
    ORIGIN = "origin"


class OrderRule(StrEnum):
    STRICT = "strict"
    BEST_EFFORT = "best_effort"


class AckRule(StrEnum):
    """When a publisher's message counts as taken from egress."""

    LOCAL = "local"
    """When the site's own log has it."""
    REMOTE = "remote"
    """When a neighbour's log has it too: survives the loss of the site's whole broker."""


class PriorityRule(StrEnum):
    """Rule for publishers' `priority` among messages that wait in egress."""

    KEEP = "keep"
    """Leave the order to a quorum queue: RabbitMQ 3 ignores priorities, RabbitMQ 4 hands out the
    highest first."""
    ORDER = "order"
    """Keep the order of publishing: egress is a classic queue, on one broker node, which knows no
    priorities."""


class WhenLogIsFull(StrEnum):
    """What happens when the log holds `max_bytes` that are still needed."""

    BLOCK = "block"
    """Nothing more is taken: egress queues grow, neighbours wait."""
    GAP = "gap"
    """The oldest goes; what needed it stops and says `gap`."""


class SigningRule(StrEnum):
    """Who answers for what a batch says."""

    NONE = "none"
    """The neighbour that brought it."""
    ED25519 = "ed25519"
    """Its origin, which signs it."""


class Unsigned(StrEnum):
    """What becomes of a batch without signature, where batches are signed."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    """While a mesh begins to sign, and its logs still have batches from before."""


class Begins(StrEnum):
    """Where a site begins that joins a mesh which runs already."""

    NOW = "now"
    """With what each origin packs once it knows of the site."""
    START = "start"
    """With what the logs still hold of what was for every site."""


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """`header` names the header for `IdentityKind.HEADER`, and is empty otherwise."""

    kind: IdentityKind = IdentityKind.UUID
    header: str = ""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often a refused message is tried before it is a dead letter. Seconds."""

    max_attempts: int = 5
    backoff_first_s: float = 0.2
    backoff_most_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """An AMQP exchange that the mesh spans. `origins`/`destinations` are site names; None: all."""

    name: str
    type: str = "topic"
    keys: tuple[str, ...] = ("#",)
    """Binding keys of what leaves a site; fanout and headers exchanges have none: all leaves."""
    origins: tuple[str, ...] | None = None
    destinations: tuple[str, ...] | None = None
    mode: ExchangeMode = ExchangeMode.TRANSPARENT
    identity: IdentityRule = IdentityRule()
    scope: IdentityScope = IdentityScope.MESH
    order: OrderRule = OrderRule.STRICT
    retry: RetryRule = RetryRule()
    lane: int = NORMAL_NUMBER
    """The number of its lane."""
    never_via: tuple[str, ...] = ()
    """Sites that must never hold its messages, not even on the way."""
    acks: AckRule = AckRule.LOCAL
    priorities: PriorityRule = PriorityRule.KEEP
    deadline_s: float | None = None
    """From publishing to delivery; what takes longer is a finding of the audit."""

    def leaves(self, site: str) -> bool:
        """Whether what is published to it at `site` goes out."""
        return site not in self.never_via and (self.origins is None or site in self.origins)

    def reaches(self, site: str) -> bool:
        """Whether `site` delivers it."""
        return site not in self.never_via and (
            self.destinations is None or site in self.destinations
        )

    @property
    def delivers_to(self) -> str:
        """Name of the exchange that the deliverer publishes to."""
        return f"{self.name}.in" if self.mode is ExchangeMode.SPLIT else self.name


class BrokerAuth(StrEnum):
    """What makes the user of a broker's address that user."""

    PASSWORD = "password"
    EXTERNAL = "external"
    """The certificate that we show (SASL EXTERNAL): the broker takes the user's name from it."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Absolute paths of PEM files; empty: the system's authorities, no certificate of our own."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """What asking a node from other machines takes, on either side."""

    token: str = ""
    """`env:NAME` or `file:PATH`; empty: the node is asked on its own machine only."""
    tls: TlsFiles = TlsFiles()
    """`ca`: whom those who ask trust; `certificate` and `key`: the node's own, and empty where
    something else stands before it with one.
    """


LOCAL_ADMIN = AdminAccess()
"""On loopback, for any program of that machine."""

SYSTEM_TRUST = TlsFiles()
"""Nothing of our own."""


@dataclass(frozen=True, slots=True)
class LogLimit:
    """How much of a site's disk its log may take. `max_bytes` None: whatever the window needs."""

    max_bytes: int | None = None
    on_full: WhenLogIsFull = WhenLogIsFull.BLOCK


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """How to reach a site's broker, as the mesh file says. Passwords are resolved elsewhere.

    A cluster has several addresses of each kind: the first stands apart, so that meshes that were
    written down before there were lists are read as ever.
    """

    amqp: str
    """`amqp[s]://user@host[:port]/vhost`, without password."""
    stream: str
    """`rabbitmq-stream[+tls]://host:port`."""
    password: str
    """`env:NAME`, `file:PATH`, or the password itself (warned of). Empty where none is needed."""
    management: str | None = None
    """`http[s]://host:port`, for what AMQP cannot declare (users, policies); None: not told."""
    tls: TlsFiles = SYSTEM_TRUST
    auth: BrokerAuth = BrokerAuth.PASSWORD
    """By which AMQP logs in; streams, too, where there is no password. The management API knows
    passwords only.
    """
    separate_users: bool = False
    """Each purpose of the site's node logs in as a user of its own, which `apply` makes."""
    more_amqp: tuple[str, ...] = ()
    """Further nodes of the cluster, with the user and virtual host of `amqp`."""
    more_streams: tuple[str, ...] = ()
    more_managements: tuple[str, ...] = ()

    @property
    def amqps(self) -> tuple[str, ...]:
        """The AMQP addresses of all nodes, in the order of the file."""
        return self.amqp, *self.more_amqp

    @property
    def streams(self) -> tuple[str, ...]:
        """The stream addresses of all nodes."""
        return self.stream, *self.more_streams

    @property
    def managements(self) -> tuple[str, ...]:
        """The management addresses of all nodes; none where none was given."""
        return () if self.management is None else (self.management, *self.more_managements)


@dataclass(frozen=True, slots=True)
class Site:
    """One broker cluster and virtual host. No `broker`: `isthmus up` runs a private one."""

    name: str
    cluster_id: str
    broker: BrokerAddress | None = None
    tags: tuple[str, ...] = ()
    wants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Exchange -> topic patterns of what this site takes of it; an exchange that is not in there
    is wanted whole.
    """
    availability: float = 1.0
    """The part of the time that its broker and node work, 0 to 1."""
    log: LogLimit = LogLimit()
    admin: str | None = None
    """`http[s]://host:port` where its node tells its status; None: on loopback only."""
    admin_access: AdminAccess = LOCAL_ADMIN
    begins: Begins = Begins.NOW
    public_keys: tuple[str, ...] = ()
    """That its batches may be signed with, as `federation.signing_keys` writes them: one, or two
    while it goes from one to the other."""
    private_key: str = ""
    """`env:NAME` or `file:PATH`, where its node finds the one that it signs with."""
    link_password: str | None = None
    """`env:NAME` or `file:PATH`: what its node shows at brokers of other sites' own, as the user of
    its links' ends; None: it logs in there as that broker's own user.
    """
    max_rate: RateSchedule | None = None
    """Of all links out of it together."""
    brokers: int = 1
    """Nodes of its private cluster; of a broker of its own nobody counts them here."""
    replicas: int | None = None
    """Members of each of the relay's queues and of the log; None: one for each broker node."""

    @property
    def is_cluster(self) -> bool:
        """True if the file says that the site's broker has several nodes."""
        has_several = self.broker is not None and bool(self.broker.more_amqp)
        return has_several or self.brokers > 1 or (self.replicas or 1) > 1


@dataclass(frozen=True, slots=True)
class Link:
    """A directed connection from site to neighbour. All three are site names.

    `meeting` is whose broker both ends connect to. `via` is `host:port` to dial instead of that
    broker's own address (a port forward, a tunnel, the WAN proxy); only for the end that is not
    the meeting site's own.
    """

    sender: str
    receiver: str
    meeting: str
    via: str | None = None
    availability: float = LINE_AVAILABILITY
    """The part of the time that its line works, 0 to 1."""
    max_rate: RateSchedule | None = None
    lane: str = ""
    """A strand of it: what carries this lane alone. Empty for the link itself, which carries the
    normal lane, and all of them in a mesh without lanes."""

    @property
    def name(self) -> str:
        return f"{self.line_name}.{self.lane}" if self.lane else self.line_name

    @property
    def line_name(self) -> str:
        """The same for all its strands: what people call the link."""
        return f"{self.sender}-{self.receiver}"


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
    """What packers write: one that every site's node reads."""
    signing: SigningRule = SigningRule.NONE
    unsigned: Unsigned = Unsigned.REFUSE
    repairers: tuple[str, ...] | None = None
    """Sites whose repairs others believe: they send in the names of any. None: all sites."""
    revoked_keys: tuple[str, ...] = ()
    """Public keys that somebody else may have: what is signed with them is refused."""
    lanes: tuple[Lane, ...] = ()
    """The first goes before all others; none: everything goes one way."""

    @property
    def retention_s(self) -> float:
        """How long a log and the barrier's memory are kept: the window plus a margin, so that a
        link that was away for just the window is not a race against retention. Seconds.
        """
        return retention_s(self.outage_window_s)

    def repairs_for_others(self, site: str) -> bool:
        """Whether other sites take what `site` sends again of anybody's messages."""
        return self.repairers is None or site in self.repairers

    def links_from(self, site: str) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.sender == site)

    def links_to(self, site: str) -> tuple[Link, ...]:
        return tuple(link for link in self.links if link.receiver == site)

    def strands(self, link: Link) -> tuple[Link, ...]:
        """What carries the link's lanes, in the order of the lanes: the link itself, and one more
        for each lane but the normal one. Each is a link to whoever runs it.
        """
        if not self.lanes:
            return (link,)
        return tuple(
            link if lane.name == NORMAL else replace(link, lane=lane.name) for lane in self.lanes
        )

    @property
    def last_lane(self) -> int | None:
        """The number of the one that waits for all others, for what is sent again; None: there are
        no lanes.
        """
        return self.lanes[-1].number if self.lanes else None

    def destination_set(self, exchange: Exchange) -> tuple[str, ...]:
        """Sorted cluster IDs that the exchange's batches are for; empty for every site.

        Those that are kept from some sites name all others, so that they are not for these when
        the file allows it later, nor where a node does not know the file yet.
        """
        if exchange.destinations is None and not exchange.never_via:
            return ()
        return tuple(
            sorted(site.cluster_id for name, site in self.sites.items() if exchange.reaches(name))
        )
