"""Objects that must exist at one site's broker, as values; `apply` creates them.

Users and their rights are in `users.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from federation.brokers.credentials import Credentials
from federation.brokers.users import (
    UserDeclaration,
    leases,
    links_meeting_at,
    put_aside_queues,
    separate_users,
    site_users,
)
from federation.mesh import Exchange, ExchangeMode, Mesh, PriorityRule, Site
from federation.names import Names, of_slots, slot_names
from federation.partitions import HASH_EXCHANGE

NEVER_DROP = 2_147_483_647
"""`x-delivery-limit` of all quorum queues of Isthmus: RabbitMQ 4 drops after 20 returns by default,
and -1, which prevents that there, makes 3.10 drop at the first return.
"""

CLASSIC_VERSION = 2
"""`x-queue-version` of classic queues: memory does not grow with the waiting messages. The only
version since RabbitMQ 4, known since 3.10.
"""

ONE_AT_A_TIME = "x-single-active-consumer"
"""Argument of a queue whose consumers take turns: the next consumer begins once the messages in
hand of the former are back in their place.
"""

LOG_SEGMENT_BYTES = 64 * 2**20
"""Segment of a log. Retention works by whole segments, so small segments keep the disk near the
need of the window; not smaller, since each segment is files and an index entry.
"""

MOST_PROBES = 100
"""Limit of the probes that a lease keeps of contenders in line, while nobody holds the lease."""

POLICY_PRIORITY = 50
"""Priority above the usual 0 of operators' catch-all policies: of several policies that match, only
the highest priority holds.
"""


@dataclass(frozen=True, slots=True)
class ExchangeDeclaration:
    """A durable exchange."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A durable queue or stream."""

    name: str
    arguments: Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class BindingDeclaration:
    """A binding. `key` is empty for fanout and headers exchanges, which take all. The destination
    `queue` is an exchange where that spreads messages over partitions: `to_exchange`.
    """

    exchange: str
    queue: str
    key: str
    to_exchange: bool = False

    def __str__(self) -> str:
        return f"{self.exchange} --{self.key}--> {self.queue}"


@dataclass(frozen=True, slots=True)
class PolicyDeclaration:
    """A policy: settings that may change later without a new queue."""

    name: str
    pattern: str
    definition: Mapping[str, str | int]

    @property
    def body(self) -> dict[str, Any]:
        """Policy as the management API takes and shows it."""
        definition = dict(self.definition)
        rank = {"apply-to": "queues", "priority": POLICY_PRIORITY}
        return {"pattern": self.pattern, "definition": definition, **rank}


@dataclass(frozen=True, slots=True)
class Declarations:
    """All objects of one site's broker, in an order in which they can be made."""

    site: str
    exchanges: tuple[ExchangeDeclaration, ...]
    queues: tuple[QueueDeclaration, ...]
    bindings: tuple[BindingDeclaration, ...]
    users: tuple[UserDeclaration, ...]
    policies: tuple[PolicyDeclaration, ...]


def declarations(
    mesh: Mesh, site: str, credentials: Credentials, formerly_delivered: Collection[str] = ()
) -> Declarations:
    """Return the objects that must exist at the broker of `site`. Raises KeyError for an unknown
    site.

    Users are declared for private brokers and with `users: separate` only; elsewhere the
    administrator makes them. `formerly_delivered`: see `site_users`.
    """
    names = Names(mesh.name)
    here = mesh.sites[site]
    aside = [queue for slot in slot_names(mesh, site) for queue in put_aside_queues(slot)]
    own = (*aside, *leases(mesh, site))
    leaving = [exchange for exchange in mesh.exchanges.values() if exchange.leaves(site)]
    return Declarations(
        site=site,
        exchanges=(
            *_exchanges(mesh, site),
            *(
                ExchangeDeclaration(names.partitions(exchange.name), HASH_EXCHANGE)
                for exchange in leaving
                if exchange.partitions > 1
            ),
            *(ExchangeDeclaration(name, "fanout") for name in own),
            *_link_exchanges(mesh, site, names),
        ),
        queues=(
            *(
                _egress(queue, exchange, here)
                for exchange in leaving
                for queue in names.egress_queues(exchange)
            ),
            *map(_quorum, aside),
            *map(_lease, leases(mesh, site)),
            *map(_log, slot_names(mesh, site)),
        ),
        bindings=(
            *(binding for exchange in leaving for binding in _egress_bindings(names, exchange)),
            *(BindingDeclaration(name, name, "") for name in own),
        ),
        users=tuple(_users(mesh, site, credentials, formerly_delivered)),
        policies=(_log_policy(mesh, here, names),),
    )


def _users(
    mesh: Mesh, site: str, credentials: Credentials, formerly_delivered: Collection[str]
) -> list[UserDeclaration]:
    broker = mesh.sites[site].broker
    if broker is None:
        return site_users(mesh, site, credentials, formerly_delivered)
    if broker.separate_users:
        return separate_users(mesh, site, credentials, formerly_delivered)
    return []


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
    # Fanout: the other end's single queue gets all, whatever the key.
    return [
        ExchangeDeclaration(name, "fanout")
        for link in links_meeting_at(mesh, site)
        for name in (names.link_data(link), names.link_acks(link))
    ]


def _egress_bindings(names: Names, exchange: Exchange) -> Iterator[BindingDeclaration]:
    """Yield the bindings from an exchange to its egress queues. The first ones to exist are those
    behind the exchange that spreads messages over partitions: what came in between would be lost.
    """
    is_partitioned = exchange.partitions > 1
    first = names.partitions(exchange.name) if is_partitioned else names.egress(exchange.name)
    if is_partitioned:
        for queue in names.egress_queues(exchange):
            yield BindingDeclaration(first, queue, "")
    for key in exchange.keys or ("",):
        yield BindingDeclaration(exchange.name, first, key, to_exchange=is_partitioned)


def _egress(name: str, exchange: Exchange, site: Site) -> QueueDeclaration:
    if exchange.priorities is PriorityRule.ORDER:
        return QueueDeclaration(
            name, {"x-queue-type": "classic", "x-queue-version": CLASSIC_VERSION}
        )
    # On a cluster a packer that lost its broker node may consume over another node before the
    # messages in hand are back. Its turn begins once they are, with the oldest.
    return _one_at_a_time(_quorum(name)) if site.is_cluster else _quorum(name)


def _quorum(name: str) -> QueueDeclaration:
    return QueueDeclaration(name, {"x-queue-type": "quorum", "x-delivery-limit": NEVER_DROP})


def _one_at_a_time(queue: QueueDeclaration) -> QueueDeclaration:
    return replace(queue, arguments={**queue.arguments, ONE_AT_A_TIME: True})


def _lease(name: str) -> QueueDeclaration:
    queue = _one_at_a_time(_quorum(name))
    return replace(queue, arguments={**queue.arguments, "x-max-length": MOST_PROBES})


def _log(names: Names) -> QueueDeclaration:
    return QueueDeclaration(
        names.log,
        {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": LOG_SEGMENT_BYTES},
    )


def _log_policy(mesh: Mesh, site: Site, names: Names) -> PolicyDeclaration:
    definition: dict[str, str | int] = {"max-age": f"{math.ceil(mesh.retention_s)}s"}
    if site.log.max_bytes is not None:
        # Even with `on_full: block`: the disk is the limit, whatever neighbours send.
        definition["max-length-bytes"] = site.log.max_bytes
    logs = of_slots(slot.log for slot in slot_names(mesh, site.name))
    return PolicyDeclaration(names.log_policy, logs, definition)
