"""Examination of the nodes of a site's broker: members and leaders of the relay's queues, and
locks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from federation.brokers.cluster_arguments import replicas_of
from federation.brokers.hash_probe import has_partitions
from federation.brokers.management import ManagementApi
from federation.brokers.provision import ONE_AT_A_TIME
from federation.mesh import Mesh
from federation.names import Names, slot_names
from federation.wording import counted
from isthmus.doctor.finding import Findings

NOTICED_WITHIN_S = 20
"""Net tick (s) up to which a hung node is noticed soon enough."""
_HASH_PLUGIN = "rabbitmq_sharding"
_HASHES_BY_ITSELF = (4, 3)
"""First release that spreads messages by a hash without a plugin."""
_QUEUES = "name,type,node,leader,members,online,arguments"


async def examine_nodes(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    """Examine every node, then the cluster of all. Raises ManagementError."""
    nodes: list[dict[str, Any]] = await api.get("nodes") or []
    for node in nodes:
        _node(node, mesh, found)
    if len(nodes) > 1:
        _cluster(nodes, mesh, found)


async def examine_members(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    """Examine members and leaders of the relay's queues, and holders of locks; nothing at a site
    with one broker node. Raises ManagementError.
    """
    nodes: list[dict[str, Any]] = await api.get("nodes", columns="name,running") or []
    if len(nodes) < 2:
        return
    names = Names(mesh.name)
    queues = [
        queue
        for queue in await api.get("queues", api.vhost, columns=_QUEUES) or []
        if queue["name"].startswith(names.prefix)
    ]
    running = [node["name"] for node in nodes if node.get("running")]
    wanted = replicas_of(mesh.sites[found.site], len(nodes)) or 1
    replicated = [queue for queue in queues if queue.get("type") in ("quorum", "stream")]
    for queue in replicated:
        _members(queue, running, wanted, found)
    _leaders(replicated, running, found)
    if mesh.sites[found.site].is_cluster:
        for queue in replicated:
            if queue["name"].startswith(names.egress_prefix):
                _turns(queue, found)
    locks = {
        lock
        for slot in slot_names(mesh, found.site)
        for lock in (slot.packer_lock, slot.deliverer_lock)
    }
    for queue in queues:
        if queue["name"] in locks:
            _lock(queue, running, mesh, found)


def _node(node: Mapping[str, Any], mesh: Mesh, found: Findings) -> None:
    needs_hash = has_partitions(mesh, found.site) and _release(node) < _HASHES_BY_ITSELF
    name = node["name"]
    if not node.get("running", False):
        found.fault("broker", f"its node {name} does not run", f"start {name}")
        return
    if node.get("mem_alarm"):
        found.fault(
            "memory",
            f"{name} has a memory alarm: it takes no messages",
            "give it more memory, or raise vm_memory_high_watermark; drain long queues",
        )
    if node.get("partitions"):
        found.fault(
            "cluster",
            f"{name} is cut off from {', '.join(node['partitions'])}",
            "mend the network, then restart the side that shall give way; "
            "set cluster_partition_handling to pause_minority",
        )
    enabled = node.get("enabled_plugins")
    if enabled is not None and "rabbitmq_stream" not in enabled:
        found.fault(
            "plugins",
            f"{name} runs without rabbitmq_stream",
            f"rabbitmq-plugins -n {name} enable rabbitmq_stream",
        )
    if enabled is not None and needs_hash and _HASH_PLUGIN not in enabled:
        found.fault(
            "plugins",
            f"{name} runs without {_HASH_PLUGIN}, which exchanges with partitions need",
            f"rabbitmq-plugins -n {name} enable {_HASH_PLUGIN}",
        )


def _release(node: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the release of RabbitMQ that a node runs, as two numbers; empty if it does not say."""
    versions = {one["name"]: str(one["version"]) for one in node.get("applications") or ()}
    return tuple(map(int, re.findall(r"\d+", versions.get("rabbit", ""))[:2]))


def _cluster(nodes: Sequence[Mapping[str, Any]], mesh: Mesh, found: Findings) -> None:
    if len(nodes) == 2:
        found.warn(
            "cluster",
            "the cluster has two nodes, and stands when either is away: a majority is both",
            "add a third node, and run `rabbitmq-queues grow NODE all` for it",
        )
    if not mesh.sites[found.site].is_cluster:
        found.warn(
            "cluster",
            f"the broker is a cluster of {len(nodes)} nodes, and the mesh file does not say so: "
            "the site's locks are exclusive queues, which two may hold, or nobody",
            "list all nodes in `broker`, or behind one address give the site `replicas`; run "
            "`isthmus apply`, then restart its node",
        )
    ticks = [node.get("net_ticktime") for node in nodes]
    slowest = max((tick for tick in ticks if isinstance(tick, int)), default=0)
    if slowest > NOTICED_WITHIN_S:
        found.warn(
            "cluster",
            f"a node that hangs counts as down after up to {slowest * 5 // 4} s, and until then "
            "the logs and queues that it leads take nothing",
            "set `net_ticktime = 15` in every node's rabbitmq.conf, and restart them in turn",
        )


def _members(
    queue: Mapping[str, Any], running: Sequence[str], wanted: int, found: Findings
) -> None:
    """Find members that do not work though their node runs, and members that were never there."""
    members = set(queue.get("members") or ())
    if not members:
        return  # no statistics yet
    is_log = queue["type"] == "stream"
    for node in sorted(members.intersection(running) - set(queue.get("online") or ())):
        found.warn(
            "members",
            f"the copy of {queue['name']} at {node} does not work",
            f"look into the log of {node}",
        )
    spare = sorted(set(running) - members)
    if len(members) < wanted and spare:
        grow = (
            # A node of 3.10 that has no stream yet would begin a coordinator of its own.
            f"on {min(members)}: rabbitmq-streams add_replica {queue['name']} {spare[0]}"
            if is_log
            else f"rabbitmq-queues grow {spare[0]} all"
        )
        found.warn(
            "members",
            f"{queue['name']} has {counted(len(members), 'copy', plural='copies')}, and "
            f"{wanted} are wanted",
            grow,
        )


def _leaders(queues: Sequence[Mapping[str, Any]], running: Sequence[str], found: Findings) -> None:
    """Find a node that leads nothing while another leads as much as both of them should."""
    # A stream has its leader as `node` only.
    leaders = (queue.get("leader") or queue.get("node") for queue in queues)
    led = Counter(leader for leader in leaders if leader in running)
    idle = [node for node in running if not led[node]]
    if not idle or led.total() < len(running):
        return
    (busiest, most), *_ = led.most_common(1)
    if most * len(running) >= 2 * led.total():
        found.warn(
            "leaders",
            f"{busiest} leads {most} of {led.total()} queues, and {', '.join(idle)} none",
            "rabbitmq-queues rebalance all",
        )


def _turns(queue: Mapping[str, Any], found: Findings) -> None:
    """Find an egress queue that was made while the site had one broker node."""
    if not (queue.get("arguments") or {ONE_AT_A_TIME: True}).get(ONE_AT_A_TIME):
        found.warn(
            "order",
            f"{queue['name']} was made without `{ONE_AT_A_TIME}`: what the relay has in hand when "
            "a broker node is lost may come behind newer messages",
            "where order matters: stop publishing until it is empty, delete it, and run "
            "`isthmus apply` before publishing again",
        )


def _lock(queue: Mapping[str, Any], running: Sequence[str], mesh: Mesh, found: Findings) -> None:
    """Find a lock of a node that is away, and one beside leases."""
    name, node = queue["name"], queue.get("node")
    if node is not None and node not in running:
        found.fault(
            "locks",
            f"{name} is orphaned: nobody can take it while {node} does not run",
            f"start {node}, or `rabbitmqctl forget_cluster_node {node}` if it is gone for good",
        )
    elif mesh.sites[found.site].is_cluster:
        found.fault(
            "locks",
            f"somebody holds {name}, which the site's own node no longer uses: a node with another "
            "mesh file works at this site too",
            "end that node, or start it with this mesh file",
        )
