"""A mesh that `isthmus up` runs, and that grows and shrinks by one site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from tests.journeys.up_mesh import UpMesh, up_mesh

pytestmark = pytest.mark.long  # three brokers of its own

TWO = """\
mesh: grows
topology: custom
links: [{from: paris, to: tokyo, both: true}]
exchanges: [{name: orders}]
sites: {paris: {}, tokyo: {}}
"""
THREE = TWO.replace("custom\nlinks: [{from: paris, to: tokyo, both: true}]", "ring").replace(
    "tokyo: {}}", "tokyo: {}, lima: {}}"
)


@pytest.fixture
async def up(tmp_path: Path, rabbitmq: RabbitMQInstallation) -> AsyncIterator[UpMesh]:
    """Two sites, up."""
    async with up_mesh(tmp_path, TWO, rabbitmq) as mesh:
        yield mesh


async def test_apply_has_up_start_and_end_what_the_file_says_and_leave_the_rest(
    up: UpMesh,
) -> None:
    before = await up.pids()
    up.write(THREE)
    code, said = await up.run("apply")
    assert "+ site lima" in said
    assert "starting the brokers of lima" in said
    code, said = await up.run("up", "--detach")
    assert "3 sites and 3 links run" in said
    grown = await up.pids()
    assert {name: grown[name] for name in before} == before

    up.write(THREE + "sitse: {}\n")
    code, said = await up.run("apply")
    assert code == 2
    up.write(THREE.replace("mesh: grows", "mesh: other"))
    code, said = await up.run("apply")
    assert code == 2
    assert "a mesh cannot change its name" in said

    up.write(TWO)
    code, said = await up.run("apply")
    assert "- site lima" in said
    assert "lima is taken out of the mesh without having been drained" in said
    code, said = await up.run("up", "--detach")
    assert await up.pids() == before
