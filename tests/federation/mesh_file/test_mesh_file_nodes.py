"""`nodes` and `cluster` of a site: what they come to, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh import EnsemblePlace, JournalPlace, NodeGroup, TlsFiles
from federation.mesh_file import parse_mesh
from federation.mesh_json import mesh_as_json, mesh_from_json
from tests.federation.marked import the_error
from tests.federation.mesh_file.test_mesh_file_clusters import mesh_with
from tests.federation.meshes import mesh_of

ZOOKEEPER = "zookeeper: [zk1:2181, zk2:2181]"
CASSANDRA = "cassandra: {hosts: c1:9042}"
CLUSTER = f"cluster: {{{ZOOKEEPER}, {CASSANDRA}}}"


def test_a_site_has_one_node_without_a_name_by_default() -> None:
    assert mesh_of(mesh_with("")).sites["paris"].nodes is None
    assert mesh_of(mesh_with("nodes: paris-a")).sites["paris"].nodes is None


def test_a_cluster_has_the_defaults_of_a_data_centre() -> None:
    assert mesh_of(mesh_with(CLUSTER)).sites["paris"].nodes == NodeGroup(
        zookeeper=EnsemblePlace(("zk1:2181", "zk2:2181")),
        cassandra=JournalPlace(("c1:9042",), "datacenter1", "isthmus_office_paris"),
    )


def test_a_cluster_that_names_no_servers_has_private_ones() -> None:
    nodes = mesh_of(mesh_with("cluster: {session: 3s}")).sites["paris"].nodes
    assert nodes is not None
    assert nodes.has_private_servers
    assert nodes.cassandra == JournalPlace((), "datacenter1", "isthmus_office_paris", 1)
    named = mesh_of(mesh_with(CLUSTER)).sites["paris"].nodes
    assert named is not None
    assert not named.has_private_servers


def test_nodes_have_names_or_any_name() -> None:
    for written, names in (("[a, b]", ("a", "b")), ("any", ()), ("a", ("a",))):
        nodes = mesh_of(mesh_with(f"nodes: {written}, {CLUSTER}")).sites["paris"].nodes
        assert nodes is not None
        assert nodes.names == names


def test_servers_may_ask_for_passwords_and_certificates() -> None:
    tls = "tls: {ca: ca.pem, certificate: node.pem, key: node-key.pem}"
    zookeeper = f"zookeeper: {{hosts: z:1, user: u, password: file:zk, {tls}}}"
    text = mesh_with(f"cluster: {{{zookeeper}, cassandra: {{hosts: c:1, tls: {{}}}}}}")
    mesh = parse_mesh(text.encode(), "mesh.yaml", folder=Path("/etc/isthmus")).mesh
    assert mesh is not None
    nodes = mesh.sites["paris"].nodes
    assert nodes is not None
    files = (f"/etc/isthmus/{name}" for name in ("ca.pem", "node.pem", "node-key.pem"))
    assert nodes.zookeeper == EnsemblePlace(("z:1",), "u", "file:/etc/isthmus/zk", TlsFiles(*files))
    assert nodes.cassandra.tls == TlsFiles()
    assert mesh_from_json(mesh_as_json(mesh)) == mesh


def test_the_password_is_relative_to_the_file_that_names_it() -> None:
    keys = "cassandra: {hosts: c1:9042, user: u, password: file:secret}"
    text = mesh_with(f"cluster: {{{ZOOKEEPER}, {keys}}}")
    mesh = parse_mesh(text.encode(), "mesh.yaml", folder=Path("/etc/isthmus")).mesh
    assert mesh is not None
    nodes = mesh.sites["paris"].nodes
    assert nodes is not None
    assert nodes.cassandra.password == "file:/etc/isthmus/secret"


def test_who_runs_a_site_is_in_no_revision_and_is_kept_with_the_mesh() -> None:
    with_nodes, without = mesh_of(mesh_with(CLUSTER)), mesh_of(mesh_with(""))
    assert with_nodes.revision == without.revision
    assert mesh_from_json(mesh_as_json(with_nodes)) == with_nodes


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("^nodes: [a, b]", "several nodes share nothing"),
        ("^nodes: any", "several nodes share nothing"),
        ("^content: {above: 1MiB}", "without `cluster`: there is no Cassandra"),
        (f"content: {{above: ^100KiB}}, {CLUSTER}", "share their batches with others"),
        (f"nodes: ^[a, any], {CLUSTER}", "`any` beside names"),
        (f"nodes: [a, ^a], {CLUSTER}", "a second node `a`"),
        (f"nodes: [^a/b], {CLUSTER}", "`a/b` cannot be a node's name"),
        (f"cluster: {{{ZOOKEEPER}, {CASSANDRA}, session: ^500ms}}", "of no use"),
        ("cluster: {zookeeper: ^[zk1:2181]}", "`zookeeper` without `cassandra`"),
        ("cluster: {cassandra: ^{hosts: c1:9042}}", "`cassandra` without `zookeeper`"),
        (
            f"cluster: {{{ZOOKEEPER}, cassandra: {{hosts: c:1, keyspace: ^9A}}}}",
            "cannot be a keyspace",
        ),
        (f"cluster: {{{ZOOKEEPER}, cassandra: {{hosts: c:1, user: ^u}}}}", "without a password"),
        (
            f"cluster: {{zookeeper: {{hosts: z:1, user: ^u}}, {CASSANDRA}}}",
            "a user without a password",
        ),
        (
            f"cluster: {{{ZOOKEEPER}, cassandra: {{hosts: c:1, tls: {{^certificate: x}}}}}}",
            "a `certificate` without its `key`",
        ),
        (
            f"cluster: {{{ZOOKEEPER}, cassandra: {{hosts: c:1, password: ^env:A}}}}",
            "without a user",
        ),
        (
            f"cluster: {{{ZOOKEEPER}, cassandra: {{hosts: c:1, user: u, password: ^secret}}}}",
            "names no password",
        ),
    ],
)
def test_mistakes_are_refused_at_their_place(keys: str, error: str) -> None:
    assert error in the_error(mesh_with(keys))


def test_each_site_has_a_keyspace_of_its_own() -> None:
    def cluster(cassandra: str) -> str:
        return f"cluster: {{{ZOOKEEPER}, cassandra: {cassandra}}}"

    same = "{hosts: c:1, keyspace: same}"
    text = mesh_with(cluster(same)).replace("tokyo: {}", f"tokyo: {{{cluster(f'^{same}')}}}")
    assert "the keyspace `same` is that of site `paris` already" in the_error(text)


def test_large_messages_may_be_kept_beside_the_log() -> None:
    mesh = mesh_of(mesh_with(f"content: {{above: 1MiB}}, {CLUSTER}"))
    assert mesh.sites["paris"].content_above == 2**20
    without = mesh_of(mesh_with(CLUSTER))
    assert without.sites["paris"].content_above is None
    assert mesh.revision == without.revision, "nobody else's business"
    assert mesh_from_json(mesh_as_json(mesh)) == mesh
