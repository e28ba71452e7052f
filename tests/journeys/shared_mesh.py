"""A mesh that all tests of a module share: an exchange of its own for each keeps them apart.

Such a module has the mark SHARED, and a fixture with the same scope that yields `running_mesh`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.application import counters_say
from tests.journeys.live_mesh import LiveMesh
from tests.live_brokers import BrokerPool, Vhost

SHARED = pytest.mark.asyncio(loop_scope="module")


@contextlib.asynccontextmanager
async def running_mesh(
    pool: BrokerPool, folder: Path, *sites: str, without: Collection[str] = (), **document: Any
) -> AsyncIterator[LiveMesh]:
    """These sites on shared brokers, with a node process each, but those `without`."""
    async with contextlib.AsyncExitStack() as made:
        vhosts = {site: await made.enter_async_context(pool.vhost(site)) for site in sites}
        yield await made.enter_async_context(mesh_on(vhosts, folder, without=without, **document))


@contextlib.asynccontextmanager
async def mesh_on(
    vhosts: dict[str, Vhost], folder: Path, *, without: Collection[str] = (), **document: Any
) -> AsyncIterator[LiveMesh]:
    """A mesh with a site in each of these virtual hosts, with a node process each, but those
    `without`.
    """
    mesh = LiveMesh(folder, document, vhosts)
    async with contextlib.AsyncExitStack() as made:
        made.push_async_callback(mesh.close)
        await mesh.prepare()
        running = [site for site in vhosts if site not in without]
        mesh.start(*([site] for site in running))
        await mesh.running(running)
        yield mesh


async def at_rest(mesh: LiveMesh) -> dict[str, Any]:
    """Wait until nothing is under way any more of what another test has sent, to no site that runs;
    what its nodes say then.

    Two looks: a message may leave one node behind the look at it, and reach another before it.
    """
    before: dict[str, int] = {}

    def is_at_rest(told: dict[str, Any]) -> dict[str, Any] | None:
        nonlocal before
        running = {name: site for name, site in told["sites"].items() if site["state"] == "running"}
        last, before = (
            before,
            {name: site["log"]["appended_messages"] for name, site in running.items()},
        )
        under_way = [site["undelivered_messages"] for site in running.values()]
        under_way += [
            link["lag_messages"]
            for link in told["links"]
            if link["from"] in running and link["to"] in running
        ]
        return told if last == before and not any(under_way) else None

    told: dict[str, Any] = await mesh.until_told(is_at_rest, "nothing is under way", within_s=120)
    return told


@contextlib.asynccontextmanager
async def counted(mesh: LiveMesh, site: str, **expected: int) -> AsyncIterator[None]:
    """In the end the site has counted so many more; counters follow what a queue gets."""
    before = (await at_rest(mesh))["sites"][site]
    yield
    await counters_say(
        mesh, site, **{name: before[name] + count for name, count in expected.items()}
    )
