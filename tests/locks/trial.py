"""One trial: a fresh cluster whose nodes are hosts of their own, and one disturbance of it.

The holder of both locks is connected to the second node, two contenders to the others.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from isthmus.brokers.config import NET_TICK_S, BrokerSpec
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.private_brokers import peered
from relay.bulk_amqp import connect
from tests.host_namespaces import HostNamespaces
from tests.live_brokers import ADMIN, START_WITHIN_S
from tests.local_cluster import LocalCluster, local_cluster
from tests.locks.contenders import LEASE, LEASE_ARGUMENTS, LOG, WORK, Contender
from tests.locks.disturbances import DISTURBANCES, HOLDER, Site, control
from tests.locks.traffic import Traffic
from tests.locks.verdict import Verdict, verdict

PORTS = (5672, 5552, 15672, 25672)
HELD_WITHIN_S = 60.0
PAUSE_MINORITY, IGNORE, KHEPRI = "pause_minority", "ignore", "Khepri"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Findings of a trial."""

    verdict: Verdict
    queue_gap_s: float
    """The longest time in which a quorum queue confirmed nothing at another node."""
    log_gap_s: float
    """The longest time in which a stream confirmed nothing at another node."""
    beliefs: tuple[str, ...]

    @property
    def row(self) -> str:
        """The cells of a table in Markdown."""
        return f"{self.verdict.row} | {self.queue_gap_s:.1f} | {self.log_gap_s:.1f}"


async def run_trial(
    installation: RabbitMQInstallation,
    name: str,
    *,
    partitions: str = PAUSE_MINORITY,
    net_tick_s: int = NET_TICK_S,
) -> Outcome:
    """One disturbance, by its name. Needs root."""
    folder = Path(tempfile.mkdtemp(prefix="isthmus-locks-"))
    try:
        with HostNamespaces(3) as hosts:
            specs = [
                BrokerSpec(
                    f"n{host}",
                    folder / f"n{host}",
                    *PORTS,
                    epmd_port=4369,
                    users=(ADMIN,),
                    host=hosts.address(host),
                    namespace=hosts.name(host),
                    net_tick_s=net_tick_s,
                )
                for host in range(hosts.count)
            ]
            cluster = local_cluster(peered(specs), installation)
            try:
                await cluster.start(deadline_s=START_WITHIN_S)
                return await _disturbed(cluster, hosts, name, partitions)
            finally:
                cluster.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _disturbed(
    cluster: LocalCluster, hosts: HostNamespaces, name: str, partitions: str
) -> Outcome:
    await _prepare(cluster, partitions)
    uris = [spec.amqp_uri(ADMIN) for spec in cluster.specs]
    traffic = [Traffic(uris[0], queue) for queue in (WORK, LOG)]
    first = Contender("first", [uris[HOLDER]], again=name == "all nodes are restarted in turn")
    others = [Contender(f"other{n}", [uris[n]]) for n in range(3) if n != HOLDER]
    site = Site(cluster, hosts, (first, *others), traffic)
    loop = asyncio.get_running_loop()
    try:
        first.begin()
        async with asyncio.timeout(HELD_WITHIN_S):
            await first.has_lock.wait()
            await first.has_lease.wait()
        for each in (*others, *traffic):
            each.begin()
        await site.settle()
        began = loop.time()
        await DISTURBANCES[name](site)
        ended = loop.time()
        gaps = [each.longest_gap(began, ended) for each in traffic]
        return Outcome(
            verdict(first.belief, [each.belief for each in others], began, ended),
            *gaps,
            beliefs=tuple(f"{who.name}: {who.belief.since(began)}" for who in (first, *others)),
        )
    finally:
        for each in (first, *others, *traffic):
            await each.end()


async def _prepare(cluster: LocalCluster, partitions: str) -> None:
    holder = cluster.nodes[HOLDER]
    connection = await connect(holder.spec.amqp_uri(ADMIN))
    channel = await connection.channel()
    await channel.declare_queue(LEASE, durable=True, arguments=LEASE_ARGUMENTS)
    await channel.declare_queue(WORK, durable=True, arguments={"x-queue-type": "quorum"})
    await channel.declare_queue(LOG, durable=True, arguments={"x-queue-type": "stream"})
    await connection.close()
    if partitions == IGNORE:
        for node in cluster.nodes:
            await control(
                node, "eval", "application:set_env(rabbit, cluster_partition_handling, ignore)."
            )
    if partitions == KHEPRI:
        await control(holder, "enable_feature_flag", "--experimental", "khepri_db", within_s=180)
