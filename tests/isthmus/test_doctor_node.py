"""What `isthmus doctor` makes of what nodes and links say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.doctor.finding import Finding, Findings, Grade
from isthmus.doctor.node import examine_formats, examine_links, examine_node
from tests.federation.meshes import TRIANGLE, mesh_of

CLUSTER = "cluster: {zookeeper: z:1, cassandra: {hosts: c:1}}"


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


@pytest.mark.parametrize(("cluster", "mend"), [("", "--site paris,"), (CLUSTER, "--node NAME,")])
def test_a_node_among_several_is_started_with_a_name(cluster: str, mend: str) -> None:
    found = Findings("paris")
    mesh = mesh_of(TRIANGLE.replace("paris: {}", f"paris: {{{cluster}}}"))
    examine_node({"state": "down", "reason": "why"}, mesh, found)
    assert mend in found.all[0].mend


@pytest.mark.parametrize(("core", "says"), [("native", "native"), ("pure", "`make setup`")])
def test_the_core_in_use_is_shown_and_no_fault(core: str, says: str) -> None:
    found = Findings("paris")
    examine_node({"state": "running", "core": core}, mesh_of(TRIANGLE), found)
    (finding,) = [finding for finding in found.all if finding.subject == "core"]
    assert finding.grade is Grade.OK
    assert says in finding.said


@pytest.mark.parametrize(
    ("state", "of_tokyo", "grade", "mend"),
    [
        ("paused", "running", Grade.WARNING, "`isthmus resume FILE --link paris-tokyo`"),
        ("down", "drained", Grade.WARNING, "`isthmus resume FILE --site tokyo`"),
        ("starting", "draining", Grade.WARNING, "take tokyo out of the mesh file"),
        ("down", "running", Grade.FAULT, "see what is said of tokyo"),
        ("stalled", "running", Grade.FAULT, "see what is said of tokyo"),
        ("lagging", "running", Grade.WARNING, "see if its lag shrinks"),
        ("gap", "running", Grade.FAULT, "`isthmus accept-gap FILE paris`"),
        ("gap", "draining", Grade.FAULT, "`isthmus accept-gap FILE paris`"),
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


READS = {"batch": [1, 1], "link": [1, 1]}


def test_a_node_that_takes_nothing_of_a_newer_neighbour_is_at_fault_with_the_mend() -> None:
    found = Findings("paris")
    examine_formats(
        {"formats": READS, "not_understood": {"oslo": "format 2"}}, mesh_of(TRIANGLE), found
    )
    (finding,) = found.all
    assert finding.grade is Grade.FAULT
    assert "nothing is taken from oslo: format 2" in finding.said
    assert "upgrade Isthmus there" in finding.mend


@pytest.mark.parametrize(
    ("written", "grade", "said"),
    [
        (1, Grade.OK, "reads batches of format 1 to 1"),
        (2, Grade.FAULT, "the node reads batches up to format 1, the file has batch_format 2"),
    ],
)
def test_whether_a_node_reads_what_the_file_has_written_is_said(
    written: int, grade: Grade, said: str
) -> None:
    found = Findings("paris")
    mesh = mesh_of(TRIANGLE.replace("mesh: acme", f"mesh: acme\nbatch_format: {written}"))
    examine_formats({"formats": READS}, mesh, found)
    (finding,) = found.all
    assert (finding.grade, finding.said) == (grade, said)
