"""Arguments that queues and logs have on a cluster alone: the number of members, where the leader
begins, and how soon a consumer on a lost node counts as gone.

A site with one broker node has none of them, so that what is there already stays the same. An
argument cannot change after the first declaration: whatever a queue was declared with is accepted.
Members can change later (`rabbitmq-queues grow`).
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
"""Value of LEADER: leaders begin at the nodes that have the fewest, not all where `apply` is."""
LOST_CONSUMER = "x-consumer-disconnected-timeout"
LOST_CONSUMER_MS = 1_000
"""From 4.3 on a quorum queue keeps what a consumer on a lost node had in hand for so long, a minute
unless told; older releases give it back at once, and take no notice of the argument.
"""
_KEYS = {"quorum": QUEUE_MEMBERS, "stream": LOG_MEMBERS}
_MOST = 5
_ARGUMENTS = "|".join((QUEUE_MEMBERS, LOG_MEMBERS, LEADER, LOST_CONSUMER, ONE_AT_A_TIME))
_INEQUIVALENT = re.compile(
    rf"inequivalent arg '({_ARGUMENTS})'.* but current is (?:none|(?:the value )?'([^']+)')"
)


def replicas_of(site: Site, nodes: int | None) -> int | None:
    """Members of each queue and of the log at a site with so many broker nodes (None: nobody
    knows); None: nothing is to be declared of them.
    """
    if site.replicas is not None:
        return None if site.replicas == nodes == 1 else site.replicas
    if nodes is None or nodes == 1:
        return None
    # A fourth member would outlive no more than three do; of two, the second is a copy more.
    return nodes if nodes < 4 else min(_MOST, nodes - 1 + nodes % 2)


async def broker_nodes(site: Site, api: ManagementApi | None) -> int | None:
    """Nodes of a site's broker; None if nobody may list them."""
    if site.broker is None:
        return site.brokers
    if api is None:
        return None
    try:
        return len(await api.get("nodes", columns="name") or ()) or None
    except ManagementError:
        return None  # its user lacks the tag `monitoring`


def on_cluster(queue: QueueDeclaration, members: int | None) -> QueueDeclaration:
    """Declare that queue of a cluster with so many members, None where nobody knows how many nodes
    there are; a classic queue has no argument of a cluster's.
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
    """Declare that argument of a cluster's which the broker's refusal names as the queue that is
    there was declared; None if the refusal names another argument.
    """
    found = _INEQUIVALENT.search(refusal)
    if found is None:
        return None
    arguments = {key: value for key, value in queue.arguments.items() if key != found[1]}
    if found[2] is not None:
        arguments[found[1]] = _value(found[2])
    return replace(queue, arguments=arguments)


def _value(told: str) -> str | int | bool:
    if told in ("true", "false"):
        return told == "true"
    return int(told) if told.isdigit() else told
