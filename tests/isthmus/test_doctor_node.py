"""What `isthmus doctor` makes of what nodes and links say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.doctor.finding import Finding, Findings, Grade
from isthmus.doctor.node import examine_links, examine_node
from tests.federation.meshes import TRIANGLE, mesh_of


def of_node(state: str, **more: Any) -> Finding:
    found = Findings("paris")
    examine_node({"state": state, "reason": "why", **more}, mesh_of(TRIANGLE), found)
    (finding,) = found.all
    return finding


@pytest.mark.parametrize(
    ("state", "grade", "mend"),
    [
        ("paused", Grade.WARNING, "`isthmus resume FILE --site paris`"),
        ("draining", Grade.WARNING, "wait till it is drained, then take it out of the mesh file"),
        ("drained", Grade.WARNING, "if it is to stay, `isthmus resume FILE --site paris`"),
        ("blocked", Grade.FAULT, "its broker and its links"),
        ("unknown", Grade.UNKNOWN, "`admin:`"),
        ("starting", Grade.WARNING, "wait, and look again"),
        ("stopped", Grade.FAULT, "do what the reason says"),
    ],
)
def test_each_state_of_a_node_has_its_mend(state: str, grade: Grade, mend: str) -> None:
    finding = of_node(state)
    assert finding.grade is grade
    assert mend in finding.mend


@pytest.mark.parametrize(
    ("state", "of_tokyo", "grade", "mend"),
    [
        ("paused", "running", Grade.WARNING, "`isthmus resume FILE --link paris-tokyo`"),
        ("down", "drained", Grade.WARNING, "`isthmus resume FILE --site tokyo`"),
        ("starting", "draining", Grade.WARNING, "take tokyo out of the mesh file"),
        ("down", "running", Grade.FAULT, "see what is said of tokyo"),
    ],
)
def test_a_link_that_somebody_holds_back_is_no_fault(
    state: str, of_tokyo: str, grade: Grade, mend: str
) -> None:
    found = Findings("paris")
    link = {"from": "paris", "to": "tokyo", "state": state, "reason": ""}
    examine_links([link], {"tokyo": {"state": of_tokyo}}, found)
    (finding,) = found.all
    assert finding.grade is grade
    assert mend in finding.mend
