"""Fixtures that every kind of test may use; real brokers among them.

A test that uses one of the broker fixtures is marked `live` by that. It fails, and is never
skipped, if there is no RabbitMQ to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from isthmus.brokers.config import NET_TICK_S, BrokerUser
from isthmus.brokers.installation import RabbitMQInstallation, find_installation
from isthmus.brokers.local_brokers import LocalBroker
from spark_audit.session import spark_session
from tests.live_brokers import (
    START_WITHIN_S,
    BrokerPool,
    Vhost,
    broker_cluster,
    discard,
    local_broker,
)
from tests.local_cluster import LocalCluster
from tests.waiting import until

# How long an example takes says how busy the machine is.
settings.register_profile("isthmus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("isthmus")

LIVE_FIXTURES = {
    "rabbitmq",
    "broker_pool",
    "vhost",
    "vhost_factory",
    "local_broker_factory",
    "cluster_factory",
}
SLOW_MARKS = ("spark", "live")
"""Tests with these take the longest, the first ones most of all."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rabbitmq",
        metavar="DIR",
        default=os.environ.get("ISTHMUS_RABBITMQ") or None,
        help="another RabbitMQ for live tests: a server's folder, or a chroot that has one "
        "(default: $ISTHMUS_RABBITMQ, or else the newest installed)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = dict.fromkeys((item.path for item in items), len(SLOW_MARKS))
    for item in items:
        if LIVE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.live)
        for rank, mark in enumerate(SLOW_MARKS):
            if item.get_closest_marker(mark):
                slow[item.path] = min(slow[item.path], rank)
    # Whole files, the slow ones first: else one process still has a test of a minute before it when
    # the other has done its last.
    items.sort(key=lambda item: slow[item.path])


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark for all tests of a process, which can have no second one: to start it takes longer
    than most of them.
    """
    with spark_session("local[2]", is_small=True) as session:
        yield session


@pytest.fixture(scope="session")
def rabbitmq(pytestconfig: pytest.Config) -> RabbitMQInstallation:
    """The RabbitMQ that live tests run."""
    folder = pytestconfig.getoption("--rabbitmq")
    return find_installation(Path(folder) if folder else None)


@pytest.fixture(scope="session")
def broker_pool(
    rabbitmq: RabbitMQInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerPool]:
    """The run's shared brokers, each started when first needed. They must not be killed."""
    pool = BrokerPool(rabbitmq, tmp_path_factory.mktemp("brokers"))
    try:
        # Here, because the kernel ties a broker's life to the thread that starts it.
        asyncio.run(pool.broker())
        yield pool
    finally:
        pool.close()


@pytest.fixture
async def vhost(broker_pool: BrokerPool) -> AsyncIterator[Vhost]:
    """A fresh virtual host on the first shared broker."""
    async with broker_pool.vhost() as made:
        yield made


VhostFactory = Callable[..., Awaitable[Vhost]]


@pytest.fixture
async def vhost_factory(broker_pool: BrokerPool) -> AsyncIterator[VhostFactory]:
    """Call with (label="", broker=0) for more virtual hosts; broker=1 is another shared node."""
    async with contextlib.AsyncExitStack() as made:

        async def make(label: str = "", *, broker: int = 0) -> Vhost:
            return await made.enter_async_context(broker_pool.vhost(label, broker=broker))

        yield make


LocalBrokerFactory = Callable[..., Awaitable[LocalBroker]]


@pytest.fixture
async def local_broker_factory(
    rabbitmq: RabbitMQInstallation, tmp_path: Path
) -> AsyncIterator[LocalBrokerFactory]:
    """Call with (name, vhosts=, users=, start=True, installation=) for a broker that this test may
    kill; without an installation it is of the release that all tests run.
    """
    made: list[LocalBroker] = []

    async def make(
        name: str = "own",
        *,
        vhosts: tuple[str, ...] = ("/",),
        users: tuple[BrokerUser, ...] = (),
        start: bool = True,
        installation: RabbitMQInstallation = rabbitmq,
    ) -> LocalBroker:
        folder = tmp_path / f"broker{len(made)}"
        broker = local_broker(installation, folder, name, vhosts=vhosts, users=users)
        made.append(broker)
        if start:
            await broker.start(deadline_s=START_WITHIN_S)
        return broker

    try:
        yield make
    finally:
        for broker in made:
            discard(broker)


ClusterFactory = Callable[..., Awaitable[LocalCluster]]


@pytest.fixture
async def cluster_factory(
    rabbitmq: RabbitMQInstallation, tmp_path: Path
) -> AsyncIterator[ClusterFactory]:
    """Call with (name, size=, vhosts=, users=, net_tick_s=60, start=True) for a cluster whose nodes
    this test may kill, suspend and start again one by one.
    """
    made: list[LocalCluster] = []

    async def make(
        name: str = "own",
        *,
        size: int = 3,
        vhosts: tuple[str, ...] = ("/",),
        users: tuple[BrokerUser, ...] = (),
        net_tick_s: int = NET_TICK_S,
        start: bool = True,
    ) -> LocalCluster:
        folder = tmp_path / f"cluster{len(made)}"
        cluster = broker_cluster(
            rabbitmq,
            folder,
            name,
            size=size,
            vhosts=vhosts,
            users=users,
            net_tick_s=net_tick_s,
        )
        made.append(cluster)
        if start:
            await cluster.start(deadline_s=START_WITHIN_S)
        return cluster

    try:
        yield make
    finally:
        for cluster in made:
            for node in cluster.nodes:
                discard(node)


Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture
def eventually() -> Eventually:
    """`tests.waiting.until` for seconds, and a failure instead of an error.

    `await eventually(lambda: seen == 3, "three deliveries", deadline_s=10)`.
    """

    async def wait(
        condition: Callable[[], Any],
        message: str | Callable[[], str],
        *,
        deadline_s: float = 10.0,
        every_s: float = 0.02,
    ) -> Any:
        try:
            return await until(condition, message, deadline_s, every_s=every_s)
        except TimeoutError as error:
            pytest.fail(str(error))

    return wait
