"""What `isthmus status` says of sites whose nodes do not answer: why, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.status import status_of
from isthmus.up.supervision import Phase
from isthmus.up.supervisor_record import ChildRecord, SupervisorRecord, write_record
from tests.federation.meshes import TRIANGLE, mesh_of


def node(name: str, state: Phase) -> ChildRecord:
    return ChildRecord(name, "node", None, None, state.value, 0, None, None, 0.0)


async def reasons(state: Path) -> dict[str, str]:
    told = (await status_of(mesh_of(TRIANGLE), state)).content
    assert {site["state"] for site in told["sites"].values()} == {"down"}
    return {name: site["reason"] for name, site in told["sites"].items()}


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A state folder in which the nodes of paris and tokyo ran."""
    for site in ("paris", "tokyo"):
        (tmp_path / "sites" / site).mkdir(parents=True)
        # Nobody listens there: ports below 1024 are the system's.
        told = {"pid": 1, "admin_port": 1}
        (tmp_path / "sites" / site / "node.json").write_text(json.dumps(told))
    return tmp_path


async def test_a_node_that_never_ran_may_have_another_state_folder(ran: Path) -> None:
    said = await reasons(ran)
    assert f"never started with the state folder {ran}" in said["sydney"]
    assert "--state" in said["sydney"]
    assert said["paris"] == "the node does not answer"


async def test_after_down_it_is_said_that_it_was_ended(ran: Path) -> None:
    children = (node("paris", Phase.ENDED), node("tokyo", Phase.RUNNING))
    write_record(ran, SupervisorRecord(1, 0, "another boot", children))
    said = await reasons(ran)
    assert said["paris"].startswith("it was ended, by `isthmus down` or Ctrl-C")
    assert said["tokyo"].startswith("it is gone, and so is `isthmus up`")
