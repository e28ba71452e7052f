"""What a changed file costs, or cannot do, is said before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from federation.brokers.applied import Applied, write_applied, write_applied_mesh
from federation.mesh import Mesh
from federation.mesh_file import Reading, load_mesh, read_mesh
from isthmus.cli import app
from isthmus.known.cautions import cautions, left_behind_notes, refusals
from isthmus.known.known_meshes import KnownMeshes
from isthmus.known.since_applied import changes_since_applied
from isthmus.plan.changes import changes_of
from relay.ledger.revisions import KeptRevisions
from relay.node.site_folder import slot_folder
from relay.operator.holds import Holds, mark_drained, write_holds

FILE = """\
mesh: acme
outage_window: 72h
topology: complete
exchanges: [{name: orders}]
sites:
  paris: {}
  tokyo: {}
  lima: {cluster_id: lima-1}
"""
WITHOUT_LIMA = FILE.replace("  lima: {cluster_id: lima-1}\n", "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A mesh file that was applied, and whose nodes ran, with the state folder beside it."""
    file = tmp_path / "mesh.yaml"
    file.write_text(FILE)
    applied(file)
    return file


def state_of(file: Path) -> Path:
    return file.parent / "state"


def applied(file: Path) -> Mesh:
    mesh, state = load_mesh(file), state_of(file)
    write_applied_mesh(state, mesh)
    for site in mesh.sites:
        write_applied(state, mesh.name, site, mesh.revision, Applied())
        KeptRevisions(state / "sites" / site / "ledger" / "revisions").keep(mesh, 1)
    return mesh


def cautions_of(file: Path) -> list[str]:
    mesh, state = load_mesh(file), state_of(file)
    return cautions(file, mesh, changes_since_applied(mesh, list(mesh.sites), state), state)


def run(command: str, file: Path, *words: str) -> Result:
    state = str(state_of(file))
    return CliRunner().invoke(app, [command, str(file), "--state", state, *words])


def order_drain(file: Path, site: str) -> Path:
    folder = state_of(file) / "sites" / site
    write_holds(folder, Holds(draining=True))
    return folder


def test_a_file_that_costs_nothing_has_no_cautions(file: Path) -> None:
    assert cautions_of(file) == []


def test_a_site_that_is_taken_out_undrained_is_told_by_plan_apply_and_status(file: Path) -> None:
    file.write_text(WITHOUT_LIMA)
    (caution,) = cautions_of(file)
    assert "lima is taken out of the mesh without having been drained" in caution
    assert f"`isthmus drain {file} lima`" in caution
    assert "lima is taken out" in run("plan", file).stdout.replace("\n", " ")
    # Nothing can be declared, since no broker runs; the warning comes first.
    assert f"warning: {caution}" in run("apply", file).stderr
    mesh = applied(file)
    assert cautions_of(file) == []
    (left,) = left_behind_notes(mesh, state_of(file))
    assert "lima is out of the mesh, and was not drained" in left
    assert "lima is out of the mesh" in run("status", file).stdout.replace("\n", " ")


def test_a_site_that_was_drained_leaves_without_a_word(file: Path) -> None:
    folder = order_drain(file, "lima")
    file.write_text(WITHOUT_LIMA)
    (caution,) = cautions_of(file)
    assert "without having been drained" in caution, "it was told to, and is not yet"
    mark_drained(folder, True)
    assert cautions_of(file) == []
    assert left_behind_notes(load_mesh(file), state_of(file)) == []


def test_a_site_of_slots_was_drained_once_all_its_slots_were(file: Path) -> None:
    folder = state_of(file) / "sites" / "lima"
    node, other = folder / "nodes" / "a", folder / "nodes" / "b"
    for one in (node, other):
        slot_folder(one, 1).mkdir(parents=True)
    write_holds(node, Holds(draining=True))
    file.write_text(WITHOUT_LIMA)
    mark_drained(node, True)
    assert any("without having been drained" in one for one in cautions_of(file))
    mark_drained(slot_folder(other, 1), True)
    assert not any("without having been drained" in one for one in cautions_of(file))


def test_of_a_site_elsewhere_nobody_here_knows_whether_it_was_drained(file: Path) -> None:
    folder = state_of(file) / "sites" / "lima"
    folder.rename(file.parent / "elsewhere")
    file.write_text(WITHOUT_LIMA)
    (caution,) = cautions_of(file)
    assert "whether it was drained is not known here" in caution


def test_a_drained_site_that_is_put_back_stays_so_until_it_is_resumed(file: Path) -> None:
    order_drain(file, "lima")
    (caution,) = cautions_of(file)
    assert "lima was told to drain" in caution
    assert f"`isthmus resume {file} --site lima`" in caution
    run("resume", file, "--site", "lima")
    assert cautions_of(file) == []


def test_a_shorter_outage_window_says_what_goes_at_once(file: Path) -> None:
    file.write_text(FILE.replace("72h", "10h"))
    (caution,) = cautions_of(file)
    assert "older than 11 h" in caution
    assert "until now 3.3 d" in caution
    assert "gap" in caution
    file.write_text(FILE.replace("72h", "96h"))
    assert cautions_of(file) == []


def test_a_newer_format_of_batches_says_what_older_nodes_do(file: Path) -> None:
    file.write_text(f"batch_format: 2\n{FILE}")
    (caution,) = cautions_of(file)
    assert "format 2 from now on (until now 1)" in caution
    assert "isthmus doctor" in caution
    applied(file)
    assert cautions_of(file) == []
    file.write_text(FILE)
    assert cautions_of(file) == []


def test_an_exchange_in_another_lane_says_what_becomes_of_its_order(file: Path) -> None:
    lanes = "lanes: [urgent, normal]\nmax_rate: 1MB/s\n"
    file.write_text(lanes + FILE)
    assert cautions_of(file) == []
    file.write_text(lanes + FILE.replace("{name: orders", "{name: orders, lane: urgent"))
    (caution,) = cautions_of(file)
    assert "exchange orders goes in lane urgent from now on (until now normal)" in caution
    applied(file)
    assert cautions_of(file) == []


def test_another_cluster_id_of_a_site_that_ran_is_refused_where_it_stands(file: Path) -> None:
    file.write_text(FILE.replace("lima-1", "lima-2"))
    result = run("apply", file)
    assert result.exit_code == 2
    assert f"{file}:8:22: `lima` ran with the cluster ID `lima-1`" in result.stderr
    assert "write cluster_id: lima-1" in result.stderr
    reading = read_mesh(file)
    assert reading.mesh is not None
    assert "mesh.yaml:8:22" in changes_of(reading, reading.mesh, state_of(file))["refused"][0]
    planned = run("plan", file)
    assert planned.exit_code == 0
    assert "apply and the nodes refuse: " in planned.stdout
    assert run("up", file, "--detach").exit_code == 2


def test_a_site_that_never_ran_may_have_another_cluster_id(file: Path) -> None:
    file.write_text(FILE.replace("lima-1", "lima-2").replace("  lima:", "  quito:"))
    reading = read_mesh(file)
    assert reading.mesh is not None
    assert list(refusals(reading.mesh, KnownMeshes(state_of(file)))) == []


def test_another_name_of_the_mesh_is_refused_once_and_not_for_each_site(file: Path) -> None:
    file.write_text(FILE.replace("acme", "emca"))
    reading = read_mesh(file)
    assert reading.mesh is not None
    (refusal,) = refusals(reading.mesh, KnownMeshes(state_of(file)))
    assert str(reading.problem(refusal)).startswith(f"{file}:1:7: the nodes that ran here are of")


def test_a_template_is_refused_at_the_line_of_its_branch(tmp_path: Path) -> None:
    text = """\
mesh: acme
topology: {hub: head}
exchanges: [{name: orders}]
sites: {head: {}}
branches:
  names: [s1, s2]
  template: {cluster_id: "old-{site}"}
"""
    file = tmp_path / "mesh.yaml"
    file.write_text(text)
    applied(file)
    file.write_text(text.replace("old-", "new-"))
    reading: Reading = read_mesh(file)
    assert reading.mesh is not None
    found = [reading.problem(one) for one in refusals(reading.mesh, KnownMeshes(state_of(file)))]
    assert [(one.line, one.column) for one in found] == [(6, 11), (6, 15)]
