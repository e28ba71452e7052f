"""What must exist at one site's broker, as values. Making it so is for apply.

Rights. The site's node has the run of its own virtual host. A neighbour that connects here has a
user of its own, which may write or read just the two exchanges of its links that meet here, and
make queues under a prefix of its own. Applications have the run of all that is not Isthmus's.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.brokers.credentials import Credentials
from federation.mesh import Exchange, ExchangeMode, Link, Mesh, Site
from federation.names import Names, matching

NEVER_DROP = 2_147_483_647
"""`x-delivery-limit` of all our quorum queues: RabbitMQ 4 drops after 20 returns by default, and
-1, which stops that there, makes 3.10 drop at the first return."""

LOG_SEGMENT_BYTES = 64 * 2**20
"""Retention works by whole segments, so small ones keep the disk near what the window needs; not
smaller, as each segment is files and an index entry."""

NOT_OURS = r"^(?!isthmus\.)"
"""Pattern of what applications may use: all names but those that begin with `isthmus.`."""

POLICY_PRIORITY = 50
"""Above the 0 that operators' catch-all policies usually have: of several policies that match,
only the one with the highest priority holds."""


@dataclass(frozen=True, slots=True)
class ExchangeDeclaration:
    """A durable exchange."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A durable queue or stream."""

    name: str
    arguments: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class BindingDeclaration:
    """`key` is empty for fanout and headers exchanges, which take all."""

    exchange: str
    queue: str
    key: str

    def __str__(self) -> str:
        return f"{self.exchange} --{self.key}--> {self.queue}"


@dataclass(frozen=True, slots=True)
class UserDeclaration:
    """A user and its rights (patterns) in the site's virtual host."""

    name: str
    password: str = field(repr=False)
    configure: str
    write: str
    read: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyDeclaration:
    """A policy: what may change later without a queue being made anew."""

    name: str
    pattern: str
    definition: Mapping[str, str | int]
    apply_to: str = "queues"
    priority: int = POLICY_PRIORITY


@dataclass(frozen=True, slots=True)
class Declarations:
    """All that must exist at one site's broker, in an order in which it can be made."""

    site: str
    exchanges: tuple[ExchangeDeclaration, ...]
    queues: tuple[QueueDeclaration, ...]
    bindings: tuple[BindingDeclaration, ...]
    users: tuple[UserDeclaration, ...]
    policies: tuple[PolicyDeclaration, ...]


def declarations(mesh: Mesh, site: str, credentials: Credentials) -> Declarations:
    """What must exist at the broker of `site`. Raises KeyError for a site that is not there.

    Users only for private brokers: at a broker of one's own, users are its administrator's.
    """
    names = Names(mesh.name)
    here = mesh.sites[site]
    leaving = [exchange for exchange in mesh.exchanges.values() if exchange.leaves(site)]
    return Declarations(
        site=site,
        exchanges=(
            *_exchanges(mesh, site),
            *(ExchangeDeclaration(name, "fanout") for name in put_aside_queues(names)),
            *_link_exchanges(mesh, site, names),
        ),
        queues=(
            *(_quorum(names.egress(exchange.name)) for exchange in leaving),
            *map(_quorum, put_aside_queues(names)),
            _log(names),
        ),
        bindings=(
            *(
                BindingDeclaration(exchange.name, names.egress(exchange.name), key)
                for exchange in leaving
                for key in exchange.keys or ("",)
            ),
            *(BindingDeclaration(name, name, "") for name in put_aside_queues(names)),
        ),
        users=tuple(site_users(mesh, site, credentials)) if here.broker is None else (),
        policies=(_log_policy(mesh, here, names),),
    )


def site_users(mesh: Mesh, site: str, credentials: Credentials) -> list[UserDeclaration]:
    """The users of a private broker. Its node's first, then one a neighbour that comes here."""
    names = Names(mesh.name)
    own = credentials.of(site)
    users = [
        UserDeclaration(names.relay_user(site), own.relay, ".*", ".*", ".*"),
        UserDeclaration(names.application_user(site), own.app, NOT_OURS, NOT_OURS, NOT_OURS),
        UserDeclaration(names.admin_user(site), own.admin, ".*", ".*", ".*", ("administrator",)),
    ]
    links = links_meeting_at(mesh, site)
    neighbours = dict.fromkeys(end for link in links for end in (link.sender, link.receiver))
    users.extend(
        _link_user(names, neighbour, links, credentials.of(neighbour).link)
        for neighbour in neighbours
        if neighbour != site
    )
    return users


def links_meeting_at(mesh: Mesh, site: str) -> list[Link]:
    """The links whose two ends connect to the broker of `site`."""
    return [link for link in mesh.links if link.meeting == site]


def put_aside_queues(names: Names) -> tuple[str, str]:
    """The queues of what a site does not deliver. Each has a fanout exchange of its own name."""
    return names.dead_letters, names.quarantine


def password_hash(password: str, salt: bytes) -> str:
    """RabbitMQ's own form: base64 of the salt (4 bytes) and SHA-256 of salt and password."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _exchanges(mesh: Mesh, site: str) -> list[ExchangeDeclaration]:
    found = []
    for exchange in mesh.exchanges.values():
        if exchange.leaves(site) or (exchange.reaches(site) and not _is_split(exchange)):
            found.append(ExchangeDeclaration(exchange.name, exchange.type))
        if exchange.reaches(site) and _is_split(exchange):
            found.append(ExchangeDeclaration(exchange.delivers_to, exchange.type))
    return found


def _is_split(exchange: Exchange) -> bool:
    return exchange.mode is ExchangeMode.SPLIT


def _link_exchanges(mesh: Mesh, site: str, names: Names) -> list[ExchangeDeclaration]:
    # Fanout: the one queue of the other end gets all, whatever the key.
    return [
        ExchangeDeclaration(name, "fanout")
        for link in links_meeting_at(mesh, site)
        for name in (names.link_data(link), names.link_acks(link))
    ]


def _quorum(name: str) -> QueueDeclaration:
    return QueueDeclaration(name, {"x-queue-type": "quorum", "x-delivery-limit": NEVER_DROP})


def _log(names: Names) -> QueueDeclaration:
    return QueueDeclaration(
        names.log,
        {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": LOG_SEGMENT_BYTES},
    )


def _log_policy(mesh: Mesh, site: Site, names: Names) -> PolicyDeclaration:
    definition: dict[str, str | int] = {"max-age": f"{math.ceil(mesh.retention_s)}s"}
    if site.log.max_bytes is not None:
        # Also with `on_full: block`: the disk is the limit, whatever neighbours bring.
        definition["max-length-bytes"] = site.log.max_bytes
    return PolicyDeclaration(names.log_policy, matching([names.log]), definition)


def _link_user(names: Names, neighbour: str, links: list[Link], password: str) -> UserDeclaration:
    # Binding a queue takes write on the queue and read on the exchange; consuming, read on the
    # queue; publishing, write on the exchange. Nothing lets it write to the default exchange,
    # through which any queue could be reached.
    sends = [link for link in links if link.sender == neighbour]
    receives = [link for link in links if link.receiver == neighbour]
    writes = [*map(names.link_data, sends), *map(names.link_acks, receives)]
    reads = [*map(names.link_acks, sends), *map(names.link_data, receives)]
    own = [names.link_queue_prefix(neighbour)]
    return UserDeclaration(
        names.link_user(neighbour),
        password,
        configure=matching(prefixes=own),
        write=matching(writes, own),
        read=matching(reads, own),
    )
