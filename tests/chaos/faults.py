"""What each kind of fault does to the mesh: begun when its context is entered, healed when it is
left. Both return when it is so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from federation.names import Names
from isthmus.status import CARRIES
from relay.bulk_amqp import Channel, connect
from tests.chaos.schedule import Fault, logs_site
from tests.chaos.shared_servers import SharedServers
from tests.chaos.world import VICTIM, VICTIM_ARGUMENTS, World
from tests.journeys.stream_file import chunks, last_segment, lose_tail
from tests.live_brokers import START_WITHIN_S, rabbitmqctl
from tests.processes import frozen
from tests.waiting import until
from wan_proxy import ISDN_64K, LAN, SATELLITE, LineCondition, ProxiedLine

ENDS_WITHIN_S = 60.0
CONTROL_WITHIN_S = 120.0
"""rabbitmqctl is an Erlang machine of its own, which starts slowly on a busy one."""
ELSEWHERE_WITHIN_S = 180.0
EGRESS_IS_OLD_S = 5.0
"""A node asks its broker every two seconds for what egress has, or four."""
LOST_CHUNKS = 20
"""Of a log that is cut short: a second's worth or two."""
AMID_A_CHUNK = 20
"""Bytes into the first chunk that is lost."""
ROOM = 10
"""Messages that a full queue has room for: fewer than it has."""

Strike = Callable[[World, Fault], AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def kill_node(world: World, fault: Fault) -> AsyncIterator[None]:
    node = await world.runs(fault.where)
    world.mesh.kill(node)
    yield
    world.start(node)


@contextlib.asynccontextmanager
async def hang_node(world: World, fault: Fault) -> AsyncIterator[None]:
    node = await world.runs(fault.where)
    world.mesh.kill(node, signal.SIGSTOP)
    yield
    world.mesh.kill(node, signal.SIGCONT)


@contextlib.asynccontextmanager
async def end_node(world: World, fault: Fault) -> AsyncIterator[None]:
    """The node that runs the site ends in order."""
    node = await world.runs(fault.where)
    code = await asyncio.to_thread(world.mesh.stop, node, within_s=ENDS_WITHIN_S)
    assert code == 0, f"{node} ended with {code}"
    yield
    world.start(node)


@contextlib.asynccontextmanager
async def hang_standby(world: World, fault: Fault) -> AsyncIterator[None]:
    runs = await world.runs(fault.where)
    (other,) = (node for node in world.nodes(fault.where) if node != runs)
    world.mesh.kill(other, signal.SIGSTOP)
    yield
    world.mesh.kill(other, signal.SIGCONT)


def hang_server(pid: Callable[[SharedServers], int]) -> Strike:
    """A server that nodes share does nothing."""

    @contextlib.asynccontextmanager
    async def strike(world: World, fault: Fault) -> AsyncIterator[None]:
        assert world.servers is not None
        with frozen(pid(world.servers)):
            yield

    return strike


@contextlib.asynccontextmanager
async def kill_cassandra(world: World, fault: Fault) -> AsyncIterator[None]:
    assert world.servers is not None
    os.kill(world.servers.cassandra_pid, signal.SIGKILL)
    yield
    await world.servers.start_cassandra()


@contextlib.asynccontextmanager
async def kill_broker(world: World, fault: Fault) -> AsyncIterator[None]:
    broker = world.mesh.vhosts[fault.where].broker
    broker.kill()
    yield
    await broker.start(deadline_s=START_WITHIN_S)


@contextlib.asynccontextmanager
async def hang_broker(world: World, fault: Fault) -> AsyncIterator[None]:
    broker = world.mesh.vhosts[fault.where].broker
    broker.suspend()
    yield
    broker.resume()


@contextlib.asynccontextmanager
async def deaf(world: World, fault: Fault) -> AsyncIterator[None]:
    """Nothing comes to the site by the group."""
    assert world.network is not None
    world.network.set_deaf(world.interface(fault.where))
    yield
    world.network.set_hearing(world.interface(fault.where))


def on_lines(harm: Callable[[ProxiedLine, ProxiedLine, str], None]) -> Strike:
    """A fault of both lines of a pair; healed, they are as they were."""

    @contextlib.asynccontextmanager
    async def strike(world: World, fault: Fault) -> AsyncIterator[None]:
        lines = world.lines(*fault.sites)
        harm(*lines, fault.detail)
        yield
        for line in lines:
            line.heal()
            line.set(LAN)

    return strike


def cut(there: ProxiedLine, back: ProxiedLine, how: str) -> None:
    for line in (there, back):
        line.cut(
            forget=how == "forgotten", new_connects="unanswered" if how == "unanswered" else "held"
        )


def one_way(there: ProxiedLine, back: ProxiedLine, way: str) -> None:
    """What goes that way is lost, over whichever of the two lines, and nobody hears of it."""
    there.cut("outward" if way == "there" else "inward", forget=True)
    back.cut("inward" if way == "there" else "outward", forget=True)


def half_open(there: ProxiedLine, back: ProxiedLine, kept: str) -> None:
    for line in (there, back):
        line.half_open("client" if kept == "client" else "target")


def reset(there: ProxiedLine, back: ProxiedLine, _: str) -> None:
    there.reset()
    back.reset()


def condition(of_line: LineCondition) -> Callable[[ProxiedLine, ProxiedLine, str], None]:
    def harm(there: ProxiedLine, back: ProxiedLine, _: str) -> None:
        there.set(of_line)
        back.set(of_line)

    return harm


def alarm(setting: str, too_little: str, as_before: str) -> Strike:
    """The broker takes no publishes while it believes to be short of something."""

    @contextlib.asynccontextmanager
    async def strike(world: World, fault: Fault) -> AsyncIterator[None]:
        broker = world.mesh.vhosts[fault.where].broker
        await rabbitmqctl(broker, setting, too_little, within_s=CONTROL_WITHIN_S)
        yield
        await rabbitmqctl(broker, setting, as_before, within_s=CONTROL_WITHIN_S)

    return strike


@contextlib.asynccontextmanager
async def queue_full(world: World, fault: Fault) -> AsyncIterator[None]:
    vhost = world.mesh.vhosts[fault.where]
    policy = {"pattern": f"^{VICTIM}$", "apply-to": "queues", "definition": {"max-length": ROOM}}
    await vhost.api("PUT", "/policies/{vhost}/full", policy)
    yield
    await vhost.api("DELETE", "/policies/{vhost}/full")


@contextlib.asynccontextmanager
async def queue_purged(world: World, fault: Fault) -> AsyncIterator[None]:
    before = await world.witnessed(fault.where)
    async with _channel(world, fault.where) as channel:
        await channel.purge_queue(VICTIM)
    world.struck[fault.where].append((before, await world.witnessed(fault.where)))
    yield


@contextlib.asynccontextmanager
async def queue_deleted(world: World, fault: Fault) -> AsyncIterator[None]:
    before = await world.witnessed(fault.where)
    async with _channel(world, fault.where) as channel:
        await channel.delete_queue(VICTIM)
    yield
    await world.victims[fault.where].declare(**VICTIM_ARGUMENTS)
    world.struck[fault.where].append((before, await world.witnessed(fault.where)))


@contextlib.asynccontextmanager
async def _channel(world: World, site: str) -> AsyncIterator[Channel]:
    connection = await connect(world.mesh.uri(site), name="chaos")
    try:
        yield await connection.channel()
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def log_deleted(world: World, fault: Fault) -> AsyncIterator[None]:
    """A site's log is gone while one of its two links is cut."""

    async def strike(site: str) -> None:
        log = Names(world.mesh.mesh.name).log
        await world.mesh.vhosts[site].api("DELETE", f"/queues/{{vhost}}/{log}")

    async with _half_cut_off(world, fault, strike):
        yield
        await world.mesh.apply()


@contextlib.asynccontextmanager
async def log_cut_short(world: World, fault: Fault) -> AsyncIterator[None]:
    """A site's broker comes back without the end of its log, as after a power cut, while one of its
    two links is cut."""
    broker = world.mesh.vhosts[logs_site(fault.where, fault.detail)].broker

    async def strike(site: str) -> None:
        broker.kill()
        segment = last_segment(world.mesh.vhosts[site], Names(world.mesh.mesh.name))
        data = [chunk for chunk in chunks(segment) if chunk.records]
        lose_tail(segment, data[-min(LOST_CHUNKS, len(data))], into=AMID_A_CHUNK)

    async with _half_cut_off(world, fault, strike):
        yield
        await broker.start(deadline_s=START_WITHIN_S)


@contextlib.asynccontextmanager
async def _half_cut_off(
    world: World, fault: Fault, strike: Callable[[str], Awaitable[None]]
) -> AsyncIterator[None]:
    """Strike at a site's log while its link to the other one is cut.

    What the site itself published is elsewhere by then: egress has forgotten it, and nothing comes
    back to its origin. In a ring the neighbour beyond the cut takes it round; in a line each of the
    two has to have it.
    """
    site = logs_site(fault.where, fault.detail)
    with contextlib.ExitStack() as healing:
        async with world.load.held(site):
            if not world.has_other_ways:
                await elsewhere(world, site, (), all)
            for line in world.lines(*fault.sites):
                healing.callback(line.heal)
                line.cut()
            await elsewhere(world, site, fault.sites, any)
            await strike(site)
        yield


async def elsewhere(
    world: World, site: str, cut: Sequence[str], how_many: Callable[[Iterable[bool]], bool]
) -> None:
    """Wait until neighbours that are not cut off, `any` or `all`, have acknowledged all that the
    site's load, which is held, had published.
    """
    loop = asyncio.get_running_loop()
    empty_since: float | None = None

    async def is_elsewhere() -> bool:
        nonlocal empty_since
        told = await world.mesh.status()
        if told["sites"][site].get("egress_messages") != 0:
            empty_since = None
            return False
        empty_since = empty_since or loop.time()
        packed_s = loop.time() - empty_since - EGRESS_IS_OLD_S
        return how_many(
            link["state"] in CARRIES and link["lag_seconds"] < packed_s
            for link in told["links"]
            if link["from"] == site and link["to"] not in cut
        )

    def what() -> str:
        return f"what {site} published is in other logs\n{world.mesh.logs()}"

    await until(is_elsewhere, what, ELSEWHERE_WITHIN_S, every_s=0.5)


STRIKES: Mapping[str, Strike] = {
    "end-node": end_node,
    "hang-standby": hang_standby,
    "hang-zookeeper": hang_server(lambda servers: servers.zookeeper_pid),
    "hang-cassandra": hang_server(lambda servers: servers.cassandra_pid),
    "kill-cassandra": kill_cassandra,
    "deaf": deaf,
    "kill-node": kill_node,
    "hang-node": hang_node,
    "kill-broker": kill_broker,
    "hang-broker": hang_broker,
    "cut": on_lines(cut),
    "one-way": on_lines(one_way),
    "64-kbit": on_lines(condition(ISDN_64K)),
    "300-ms": on_lines(condition(SATELLITE)),
    "reset": on_lines(reset),
    "half-open": on_lines(half_open),
    "disk-alarm": alarm("set_disk_free_limit", "100000GB", "50MB"),
    "memory-alarm": alarm("set_vm_memory_high_watermark", "0.00001", "0.4"),
    "queue-full": queue_full,
    "queue-purged": queue_purged,
    "queue-deleted": queue_deleted,
    "log-deleted": log_deleted,
    "log-cut-short": log_cut_short,
}
