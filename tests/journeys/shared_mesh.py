"""A mesh that all tests of a module share: an exchange of its own for each keeps them apart.

Such a module has the mark SHARED, and a fixture with the same scope that yields `running_mesh`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.application import counters_say
from tests.journeys.live_mesh import LiveMesh
from tests.live_brokers import BrokerPool

SHARED = pytest.mark.asyncio(loop_scope="module")


@contextlib.asynccontextmanager
async def running_mesh(
    pool: BrokerPool, folder: Path, *sites: str, **document: Any
) -> AsyncIterator[LiveMesh]:
    """These sites on shared brokers, with a node process each."""
    async with contextlib.AsyncExitStack() as made:
        vhosts = {site: await made.enter_async_context(pool.vhost(site)) for site in sites}
        mesh = LiveMesh(folder, document, vhosts)
        made.push_async_callback(mesh.close)
        await mesh.prepare()
        mesh.start_each()
        await mesh.running()
        yield mesh


@contextlib.asynccontextmanager
async def counted(mesh: LiveMesh, site: str, **expected: int) -> AsyncIterator[None]:
    """In the end the site has counted so many more; counters follow what a queue gets."""
    before = (await mesh.status())["sites"][site]
    yield
    await counters_say(
        mesh, site, **{name: before[name] + count for name, count in expected.items()}
    )
