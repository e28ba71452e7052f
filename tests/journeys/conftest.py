"""Fixtures of the journeys: whole meshes on real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from tests.conftest import LocalBrokerFactory, VhostFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import ANONYMOUS, NAMED, Load
from tests.journeys.several_nodes import NODES, PER_SECOND, SITE, SiteServers, TwoNodes
from tests.live_brokers import Vhost, own_vhost
from wan_proxy import LineCondition, WanProxy

MeshFactory = Callable[..., Awaitable[LiveMesh]]
LoadFactory = Callable[..., Load]
LoadedMeshFactory = Callable[..., Awaitable[tuple[LiveMesh, Load]]]


@pytest.fixture
async def live_mesh(
    tmp_path: Path, vhost_factory: VhostFactory, local_broker_factory: LocalBrokerFactory
) -> AsyncIterator[MeshFactory]:
    """Call with (*sites, own=, releases=, wan=, **document) for a mesh that is applied; `.start()`
    runs its nodes.

    The sites in `own` have a broker each that the test may kill, those in `releases` of another
    installation; the others share one. `wan`: (sender, receiver) of the links that go over the WAN
    proxy; see `LiveMesh.lines`.
    """
    made: list[LiveMesh] = []
    async with WanProxy(seed=1) as proxy:

        async def make(
            *sites: str,
            own: tuple[str, ...] = (),
            releases: Mapping[str, RabbitMQInstallation] | None = None,
            wan: Mapping[tuple[str, str], LineCondition] | None = None,
            **document: Any,
        ) -> LiveMesh:
            other = {site: {"installation": one} for site, one in (releases or {}).items()}
            started = await asyncio.gather(
                *(local_broker_factory(site, **other.get(site, {})) for site in own)
            )
            brokers = dict(zip(own, started, strict=True))
            vhosts: dict[str, Vhost] = {}
            for site in sites:
                known = brokers.get(site)
                vhosts[site] = await (own_vhost(known, site) if known else vhost_factory(site))
            document.setdefault("exchanges", [{"name": "orders"}])
            mesh = LiveMesh(tmp_path / f"mesh{len(made)}", document, vhosts)
            mesh.folder.mkdir()
            made.append(mesh)
            for (sender, receiver), condition in (wan or {}).items():
                await mesh.go_over(proxy, sender, receiver, condition)
            await mesh.prepare()
            return mesh

        yield make
        for mesh in made:
            await mesh.close()


@pytest.fixture
def listening_mesh(live_mesh: MeshFactory) -> MeshFactory:
    """Call as `live_mesh` for a mesh that runs, a process a site, with a sink at every site."""

    async def make(*sites: str, **how: Any) -> LiveMesh:
        mesh = await live_mesh(*sites, **how)
        await mesh.listen()
        mesh.start_each()
        await mesh.running()
        return mesh

    return make


@pytest.fixture
async def load() -> AsyncIterator[LoadFactory]:
    """Call with (mesh, **settings) for load on it, which ends with the test."""
    made: list[Load] = []

    def make(mesh: LiveMesh, **settings: Any) -> Load:
        made.append(Load(mesh, **settings))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def loaded_mesh(live_mesh: MeshFactory, load: LoadFactory) -> LoadedMeshFactory:
    """Call as `live_mesh` for a mesh that runs, a process a site, with load at every site."""

    async def make(
        *sites: str, kinds: Sequence[str] = (NAMED, ANONYMOUS), **how: Any
    ) -> tuple[LiveMesh, Load]:
        mesh = await live_mesh(*sites, **how)
        mesh.start_each()
        await mesh.running()
        traffic = load(mesh, kinds=kinds)
        await traffic.start()
        return mesh, traffic

    return make


@pytest.fixture
async def site_servers(tmp_path: Path) -> AsyncIterator[SiteServers]:
    """Servers that the nodes of a site share."""
    async with SiteServers.started(tmp_path) as servers:
        yield servers


@pytest.fixture
async def two_nodes(
    site_servers: SiteServers, live_mesh: MeshFactory, load: LoadFactory
) -> TwoNodes:
    """A hub whose site in the middle has two nodes, with load at every site."""
    return await hub_of_two_nodes(site_servers, live_mesh, load)


async def hub_of_two_nodes(
    servers: SiteServers, live_mesh: MeshFactory, load: LoadFactory
) -> TwoNodes:
    """Make a hub whose site in the middle has two nodes with these servers, and load everywhere."""
    nodes = {"nodes": NODES, "cluster": servers.keys}
    mesh = await live_mesh(
        *("paris", SITE, "sydney"),
        topology={"hub": SITE},
        sites={"paris": {}, SITE: nodes, "sydney": {}},
    )
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh, per_second=PER_SECOND)
    await traffic.start()
    return TwoNodes(mesh, traffic, servers)
