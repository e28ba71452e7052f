"""A site whose slots are to be changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.mesh_file import load_mesh
from relay.ledger.file_writer import FileWriters
from tests.relay.reslot.former_site import MESH, Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    writers = FileWriters()
    file = tmp_path / "mesh.yaml"
    file.write_text(MESH)
    yield Site(tmp_path / "sites" / "a", load_mesh(file), writers)
    await writers.close()
