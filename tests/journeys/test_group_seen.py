"""Show to an operator that a site of a multicast group does not hear the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from federation.group_key import new_group_key
from isthmus.doctor.examination import examine
from isthmus.doctor.finding import Finding, Grade
from tests.journeys.conftest import LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.test_multicast import SITES, group_mesh

OF_LIMA = "nothing of lima has come by the multicast group to paris, tokyo, sydney for "
TO_LIMA = "nothing of paris, sydney, tokyo has come by the multicast group to lima for "


def is_told(told: dict[str, Any]) -> bool:
    """Return True if status names all pairs."""
    return all(any(note.startswith(one) for note in told["notes"]) for one in (OF_LIMA, TO_LIMA))


async def findings(mesh: LiveMesh) -> dict[str, Finding]:
    """Return the findings of doctor about each site's membership."""
    found = await examine(mesh.book, SITES, mesh.state)
    return {one.site: one for one in found if one.subject == "multicast"}


@pytest.mark.slow
async def test_a_site_with_another_key_is_named_by_status_and_doctor(
    tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh = await group_mesh(tmp_path, live_mesh, key="env:GROUP_KEY")
    others = [site for site in SITES if site != "lima"]
    mesh.environment["GROUP_KEY"] = new_group_key()
    mesh.start(others)
    mesh.environment["GROUP_KEY"] = new_group_key()
    mesh.start(["lima"])
    await mesh.running()
    traffic = load(mesh, per_second=20)
    await traffic.start()
    await mesh.until_told(is_told, "status names who does not hear whom", within_s=120)
    found = await findings(mesh)
    assert {one.grade for one in found.values()} == {Grade.WARNING}
    assert found["lima"].said.startswith("the site does not hear paris, sydney, tokyo, for ")
    assert "that this group's key does not open" in found["lima"].said
    assert found["tokyo"].said.startswith("the site does not hear lima, for ")
    group = (await mesh.status())["sites"]["tokyo"]["group"]
    assert group["heard"]["paris"]["s_ago"] < 10
    assert group["heard"]["lima"]["appended"] == 0
    assert group["heard"]["lima"]["by_links"] > 0
    await traffic.end()
    await traffic.arrived(within_s=60)
    traffic.check(lambda site, origin: 0)
