"""Arguments of queues and logs on clusters only: number of members, place of the leader, and the
time until a consumer on a lost node counts as gone.

A site with one broker node gets none of them, so that present queues stay the same. No argument can
change after the first declaration: the arguments of a present queue are accepted. Members can
change later (`rabbitmq-queues grow`).
"""

from __future__ import annotations

import re
from dataclasses import replace

from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.provision import ONE_AT_A_TIME, QueueDeclaration
from federation.mesh import Site

QUEUE_MEMBERS = "x-quorum-initial-group-size"
LOG_MEMBERS = "x-initial-cluster-size"
LEADER = "x-queue-leader-locator"
EVENLY = "balanced"
"""Value of LEADER: leaders begin at the nodes with the fewest leaders, not all where `apply`
connects.
"""
LOST_CONSUMER = "x-consumer-disconnected-timeout"
LOST_CONSUMER_MS = 1_000
"""Time for which a quorum queue keeps the messages in hand of a consumer on a lost node, from 4.3
on (a minute by default); older releases give them back at once, and ignore the argument.
"""
_KEYS = {"quorum": QUEUE_MEMBERS, "stream": LOG_MEMBERS}
_MOST = 5
_ARGUMENTS = "|".join((QUEUE_MEMBERS, LOG_MEMBERS, LEADER, LOST_CONSUMER, ONE_AT_A_TIME))
_INEQUIVALENT = re.compile(
    rf"inequivalent arg '({_ARGUMENTS})'.* but current is (?:none|(?:the value )?'([^']+)')"
)


def replicas_of(site: Site, nodes: int | None) -> int | None:
    """Return the members of each queue and of the log at a site with `nodes` broker nodes (None if
    unknown), or None if nothing is to be declared about members.
    """
    if site.replicas is not None:
        return None if site.replicas == nodes == 1 else site.replicas
    if nodes is None or nodes == 1:
        return None
    # A fourth member tolerates no more losses than three; of two, the second is one more copy.
    return nodes if nodes < 4 else min(_MOST, nodes - 1 + nodes % 2)


async def broker_nodes(site: Site, api: ManagementApi | None) -> int | None:
    """Return the number of nodes of a site's broker, or None if they may not be listed."""
    if site.broker is None:
        return site.brokers
    if api is None:
        return None
    try:
        return len(await api.get("nodes", columns="name") or ()) or None
    except ManagementError:
        return None  # its user lacks the tag `monitoring`


def on_cluster(queue: QueueDeclaration, members: int | None) -> QueueDeclaration:
    """Return the declaration of a queue on a cluster with `members` (None if unknown); a classic
    queue has no such arguments.
    """
    key = _KEYS.get(str(queue.arguments.get("x-queue-type")))
    arguments = dict(queue.arguments)
    if key is None:
        return queue
    if members is not None:
        arguments[key] = members
    arguments[LEADER] = EVENLY
    if key == QUEUE_MEMBERS:
        arguments[LOST_CONSUMER] = LOST_CONSUMER_MS
    return replace(queue, arguments=arguments)


def as_there(queue: QueueDeclaration, refusal: str) -> QueueDeclaration | None:
    """Return `queue` with the cluster argument that the broker's refusal names set as the present
    queue has it, or None if the refusal names another argument.
    """
    found = _INEQUIVALENT.search(refusal)
    if found is None:
        return None
    arguments = {key: value for key, value in queue.arguments.items() if key != found[1]}
    if found[2] is not None:
        arguments[found[1]] = _value(found[2])
    return replace(queue, arguments=arguments)


def _value(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text
