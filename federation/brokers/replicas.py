"""Number of members of a queue or log on a cluster: an argument of its first declaration.

A site with one broker node has no such argument, so that what is there already stays the same. An
argument cannot change later, and members can (`rabbitmq-queues grow`): whatever number a queue was
declared with is accepted.
"""

from __future__ import annotations

import re
from dataclasses import replace

from federation.brokers.management import ManagementApi, ManagementError
from federation.brokers.provision import QueueDeclaration
from federation.mesh import Site

QUEUE_MEMBERS = "x-quorum-initial-group-size"
LOG_MEMBERS = "x-initial-cluster-size"
MEMBERS = (QUEUE_MEMBERS, LOG_MEMBERS)
_KEYS = {"quorum": QUEUE_MEMBERS, "stream": LOG_MEMBERS}
_MOST = 5
_INEQUIVALENT = re.compile(
    rf"inequivalent arg '({'|'.join(MEMBERS)})'.* but current is (?:none|(?:the value )?'(\d+)')"
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


def with_replicas(queue: QueueDeclaration, members: int | None) -> QueueDeclaration:
    """Declare that queue with so many members; a classic queue has none."""
    key = _KEYS.get(str(queue.arguments.get("x-queue-type")))
    if members is None or key is None:
        return queue
    return replace(queue, arguments={**queue.arguments, key: members})


def as_there(queue: QueueDeclaration, refusal: str) -> QueueDeclaration | None:
    """The declaration with as many members as the queue that is there was declared with; None if
    the broker's refusal is not about members.
    """
    found = _INEQUIVALENT.search(refusal)
    if found is None:
        return None
    arguments = {key: value for key, value in queue.arguments.items() if key != found[1]}
    if found[2] is not None:
        arguments[found[1]] = int(found[2])
    return replace(queue, arguments=arguments)
