"""Files of a site's folder that the nodes of a site share through its state."""

from __future__ import annotations

from pathlib import Path

from dedup.memory_store import MemoryStore
from federation.mesh import Mesh
from relay.ledger.members import RevisionMembers, encode_members
from relay.ledger.revisions import KeptRevisions
from relay.node.shared_files import SharedFiles
from relay.node.site_folder import MEMBERS, REVISIONS
from relay.state.node_state import TABLES, NodeState
from tests.federation.meshes import TRIANGLE, mesh_of


class _Node:
    """What a node keeps in files of its folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.files = SharedFiles(folder)
        self.revisions = KeptRevisions(folder / REVISIONS, self.files.wrote)
        self.members = RevisionMembers(folder / MEMBERS, self.files.wrote)

    def begin(self, state: NodeState, mesh: Mesh) -> None:
        self.files.begin(state)
        self.revisions.load()
        self.revisions.keep(mesh, 2000)
        self.members.load([mesh, *self.revisions.retired(mesh)])


def test_the_next_node_has_the_files_of_the_one_before(tmp_path: Path) -> None:
    store = MemoryStore(TABLES)
    mesh, later = mesh_of(TRIANGLE), mesh_of(f"{TRIANGLE}outage_window: 48h\n")
    one, other = _Node(tmp_path / "one"), _Node(tmp_path / "other")
    other.revisions.keep(later, 1500)  # stood by, and took the file up for itself
    one.begin(NodeState(store), mesh)
    assert one.members.learn("former", encode_members(["paris"]), 1000)
    one.files.end()
    other.begin(NodeState(store), later)
    assert other.members.knows("former", 3000)
    assert other.revisions.retired(later) == [mesh]


def test_a_node_without_the_state_writes_only_its_own_folder(tmp_path: Path) -> None:
    store = MemoryStore(TABLES)
    one, other = _Node(tmp_path / "one"), _Node(tmp_path / "other")
    one.begin(NodeState(store), mesh_of(TRIANGLE))
    one.files.end()
    assert one.members.learn("later", encode_members(["paris"]), 1000)
    other.begin(NodeState(store), mesh_of(TRIANGLE))
    assert not other.members.knows("later", 3000)
