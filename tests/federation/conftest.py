"""Paris, to be applied on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.federation.live_site import FILE, Site
from tests.federation.meshes import mesh_of
from tests.live_brokers import Vhost


@pytest.fixture
async def paris(vhost: Vhost, tmp_path: Path) -> Site:
    """Paris, whose broker has no more than `isthmus up` makes."""
    # Users belong to the whole broker: the mesh of each test has a name of its own.
    mesh = mesh_of(FILE.replace("MESH", vhost.name.replace(".", "-")))
    site = Site(vhost, mesh, "paris", tmp_path / "state")
    await site.make_admin()
    return site
