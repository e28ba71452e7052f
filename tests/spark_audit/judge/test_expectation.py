"""Who was to get a batch, by the mesh document of its revision."""

from __future__ import annotations

from pathlib import Path

from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from federation.mesh_json import mesh_as_json
from spark_audit.judge.expectation import Addressed, Revisions, stages_of

FOUR = """
mesh: m
outage_window: 1h
topology: ring
both: true
sites:
  a: {}
  b: {}
  c: {}
  d: {%s}
exchanges:
  - name: orders
  - name: narrow
    to: [a, b]
  - name: kept
    never_via: [c]
"""


def mesh_of(folder: Path, text: str) -> Mesh:
    file = folder / "mesh.yaml"
    file.write_text(text)
    return load_mesh(file)


def expected(
    mesh: Mesh, exchange: str, origin: str, destinations: tuple[str, ...] = ()
) -> set[str]:
    revisions = Revisions.read([("a", {"mesh": mesh_as_json(mesh), "taken_up_ms": 1})])
    cluster = mesh.sites[origin].cluster_id
    found = revisions.expected(Addressed(mesh.revision, exchange, cluster, destinations))
    assert found is not None
    return {revisions.site_names()[one] for one in found}


def test_every_site_but_the_origin(tmp_path: Path) -> None:
    mesh = mesh_of(tmp_path, FOUR % "")
    assert expected(mesh, "orders", "a") == {"b", "c", "d"}


def test_the_sites_of_the_exchange(tmp_path: Path) -> None:
    mesh = mesh_of(tmp_path, FOUR % "")
    assert expected(mesh, "narrow", "a") == {"b"}
    assert expected(mesh, "kept", "a") == {"b", "d"}


def test_no_more_than_the_batch_is_addressed_to(tmp_path: Path) -> None:
    mesh = mesh_of(tmp_path, FOUR % "")
    assert expected(mesh, "orders", "a", (mesh.sites["c"].cluster_id,)) == {"c"}
    assert expected(mesh, "orders", "a", (mesh.sites["a"].cluster_id,)) == set()


def test_a_revision_that_nobody_kept_is_not_guessed(tmp_path: Path) -> None:
    mesh = mesh_of(tmp_path, FOUR % "")
    revisions = Revisions.read([("a", {"mesh": mesh_as_json(mesh), "taken_up_ms": 1})])
    assert revisions.expected(Addressed("other", "orders", "a", ())) is None


def test_a_site_that_begins_at_the_start_says_so_itself(tmp_path: Path) -> None:
    mesh = mesh_of(tmp_path, FOUR % "from: start")
    content = {"mesh": mesh_as_json(mesh), "taken_up_ms": 1}
    assert Revisions.read([("a", content)]).begins_at_start == set()
    assert Revisions.read([("d", content)]).begins_at_start == {mesh.sites["d"].cluster_id}


def test_a_document_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    assert Revisions.read([("a", {"mesh": {}, "taken_up_ms": 1})]).unreadable


def test_the_deadline_is_that_of_the_revision(tmp_path: Path) -> None:
    slow = mesh_of(tmp_path, FOUR % "")
    fast = mesh_of(tmp_path, (FOUR % "").replace("to: [a, b]", "to: [a, b]\n    deadline: 2m"))
    revisions = Revisions.read(
        [("a", {"mesh": mesh_as_json(mesh), "taken_up_ms": 1}) for mesh in (slow, fast)]
    )
    cluster = slow.sites["a"].cluster_id
    assert revisions.deadline_ms(Addressed(slow.revision, "narrow", cluster, ())) is None
    assert revisions.deadline_ms(Addressed(fast.revision, "narrow", cluster, ())) == 120_000
    assert revisions.deadline_ms(Addressed(fast.revision, "orders", cluster, ())) is None


def test_each_stage_of_a_site_has_to_tell(tmp_path: Path) -> None:
    mesh = mesh_of(tmp_path, FOUR % "")
    assert stages_of(mesh, "a") == ["packed", "linked_out", "linked_in", "delivered"]
    one_way = mesh_of(
        tmp_path,
        "mesh: m\noutage_window: 1h\ntopology: custom\nlinks: [{from: a, to: b}]\n"
        "sites: {a: {}, b: {}}\nexchanges: [{name: o, from: [a], to: [b]}]\n",
    )
    assert stages_of(one_way, "a") == ["packed", "linked_out", "delivered"]
    assert stages_of(one_way, "b") == ["packed", "linked_in", "delivered"]


def test_each_batch_goes_by_the_scope_and_order_of_its_revision(tmp_path: Path) -> None:
    text = FOUR % ""
    morning = mesh_of(tmp_path, text)
    noon = mesh_of(
        tmp_path,
        text.replace("name: orders", "name: orders\n    scope: origin\n    order: best_effort"),
    )
    without = mesh_of(tmp_path, text.replace("  - name: orders\n", ""))
    revisions = Revisions()
    for number, mesh in enumerate((morning, noon, without)):
        revisions.add(mesh, number)
    since_noon = {"orders": tuple(sorted((noon.revision, without.revision)))}
    for found in (revisions.scoped_by_origin(), revisions.loosely_ordered()):
        assert (found.always, found.at_times) == ((), since_noon)
    revisions = Revisions()
    revisions.add(noon, 1)
    assert revisions.scoped_by_origin().always == ("orders",)
    assert revisions.scoped_by_origin().at_times == {}


def test_a_site_left_when_the_first_of_the_others_went_on_without_it(tmp_path: Path) -> None:
    four = mesh_of(tmp_path, FOUR % "")
    three = mesh_of(tmp_path, (FOUR % "").replace("  d: {}\n", ""))

    def left_ms(**taken_up: list[tuple[Mesh, int]]) -> int | None:
        told = [
            (site, {"mesh": mesh_as_json(mesh), "taken_up_ms": ms})
            for site, by_mesh in taken_up.items()
            for mesh, ms in by_mesh
        ]
        return Revisions.read(told).left_ms("d")

    assert left_ms(a=[(four, 1), (three, 9)], b=[(four, 1), (three, 7)], d=[(four, 2)]) == 7
    assert left_ms(a=[(four, 1)], d=[(four, 2)]) is None
    # It was out for a while, and is back.
    assert left_ms(a=[(three, 5), (four, 8)]) is None
    assert left_ms(a=[(four, 1), (three, 9)], b=[(three, 5), (four, 8)]) == 9
    # Who left before it came, and whose ledger lies there still, knows nothing of its going.
    assert left_ms(b=[(three, 1)], a=[(four, 5), (three, 9)]) == 9
    assert left_ms(b=[(three, 1)], a=[(four, 5)]) is None


def test_the_slots_of_a_site_follow_from_when_it_took_up_its_revisions(tmp_path: Path) -> None:
    one, four = mesh_of(tmp_path, FOUR % ""), mesh_of(tmp_path, FOUR % "slots: 4")
    documents = [
        # Of one slot again since 300; another node's copy of the document is older.
        ("d", {"mesh": mesh_as_json(one), "taken_up_ms": 300}),
        ("d", {"mesh": mesh_as_json(one), "taken_up_ms": 100}),
        ("d", {"mesh": mesh_as_json(four), "taken_up_ms": 200}),
        ("a", {"mesh": mesh_as_json(four), "taken_up_ms": 250}),
    ]
    found = Revisions.read(documents).slots_of("d")
    assert [(taken.from_ms, taken.to_ms, taken.slots.count) for taken in found] == [
        (200, 300, 4),
        (300, None, 1),
    ]
    assert Revisions.read(documents).slots_of("b") == []
