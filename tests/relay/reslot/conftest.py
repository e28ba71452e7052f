"""A site whose slots are to be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh_file import load_mesh
from tests.relay.reslot.former_site import MESH, KeptRows, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    file = tmp_path / "mesh.yaml"
    file.write_text(MESH)
    return Site(tmp_path / "sites" / "a", load_mesh(file), KeptRows())
