"""Nodes that do not run the mesh file as it is now."""

from __future__ import annotations

from isthmus.status import revision_notes


def test_nothing_is_said_of_nodes_that_all_run_the_file() -> None:
    assert revision_notes("new", {"a": {"revision": "new"}, "b": {"revision": "new"}}) == []


def test_different_revisions_are_told_apart() -> None:
    sites = {"a": {"revision": "new"}, "b": {"revision": "old"}, "c": {"revision": "old"}}
    (said,) = revision_notes("new", sites)
    assert said.endswith("of the mesh file: new (the file): a; old: b, c")


def test_a_file_that_no_node_runs_yet_is_said() -> None:
    (said,) = revision_notes("new", {"a": {"revision": "old"}, "b": {"state": "down"}})
    assert said.startswith("the nodes run revision old, the file is at new")


def test_why_a_node_did_not_take_it_up_is_said() -> None:
    sites = {"a": {"revision": "old", "file_problem": "mesh.yaml:3:1: wrong"}}
    assert "a: the mesh file is not taken up: mesh.yaml:3:1: wrong" in revision_notes("new", sites)
