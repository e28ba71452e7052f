"""Fixtures of the journeys: whole meshes on real brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import VhostFactory
from tests.journeys.live_mesh import LiveMesh

MeshFactory = Callable[..., Awaitable[LiveMesh]]


@pytest.fixture
async def live_mesh(tmp_path: Path, vhost_factory: VhostFactory) -> AsyncIterator[MeshFactory]:
    """Call with (*sites, **document) for a mesh that is applied; `.start()` runs its nodes."""
    made: list[LiveMesh] = []

    async def make(*sites: str, **document: Any) -> LiveMesh:
        vhosts = {site: await vhost_factory(site) for site in sites}
        document.setdefault("exchanges", [{"name": "orders"}])
        mesh = LiveMesh(tmp_path / f"mesh{len(made)}", document, vhosts)
        mesh.folder.mkdir()
        made.append(mesh)
        await mesh.prepare()
        return mesh

    yield make
    for mesh in made:
        await mesh.close()
