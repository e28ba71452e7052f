"""Private ZooKeeper and Cassandra of a mesh: where they listen, and what is said without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from federation.brokers.addresses import read_private_servers
from isthmus.cluster_parts import cassandra_node, parts, zookeeper_member
from isthmus.cluster_parts.parts import PartsMissing
from isthmus.up.mesh_children import MeshChildren
from isthmus.up.private_servers import private_servers
from tests.federation.mesh_file.test_mesh_file_clusters import mesh_with
from tests.federation.meshes import mesh_of


@pytest.fixture
def parts_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that all parts are on this machine."""
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "jamm-0.4.0.jar").touch()
    for module in (cassandra_node, zookeeper_member):
        monkeypatch.setattr(module, "JARS", jars)
    monkeypatch.setattr(parts, "CLIENTS", ())


@pytest.mark.usefixtures("parts_are_here")
async def test_servers_listen_on_loopback_at_ports_that_stay(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    zookeeper, cassandra = private_servers(state)
    ports = read_private_servers(state)
    assert ports is not None
    assert [server.name for server in (zookeeper, cassandra)] == ["zookeeper", "cassandra"]
    assert private_servers(state)[0].command == zookeeper.command
    assert read_private_servers(state) == ports
    for server in (zookeeper, cassandra):
        server.command = ("true",)
        await server.start()
        await server.stop()
    told = (state / "servers/zookeeper/zoo.cfg").read_text().splitlines()
    assert {f"clientPort={ports.zookeeper_port}", "clientPortAddress=127.0.0.1"} < set(told)
    keys = yaml.safe_load((state / "servers/cassandra/cassandra.yaml").read_text())
    assert keys["listen_address"] == keys["rpc_address"] == "127.0.0.1"
    assert (keys["native_transport_port"], keys["storage_port"]) == (
        ports.cassandra_port,
        ports.storage_port,
    )


@pytest.mark.usefixtures("parts_are_here")
def test_servers_run_while_a_site_needs_them_and_no_longer(tmp_path: Path) -> None:
    children = MeshChildren(tmp_path / "mesh.yaml", tmp_path / "state", tmp_path)

    def servers(keys: str) -> list[str]:
        text = mesh_with(keys).replace(
            "tokyo: {}", "tokyo: {broker: 'amqps://u@b/v', password: env:P}"
        )
        plans = children.plans(mesh_of(text))
        return [plan.child.name for plan in plans if plan.child.kind == "server"]

    own = "broker: 'amqps://u@a/v', password: env:P, nodes: [x, y], "
    assert servers(own + "cluster: {}") == ["zookeeper", "cassandra"]
    assert servers(own + "cluster: {zookeeper: z:1, cassandra: {hosts: c:1}}") == []
    assert servers("broker: 'amqps://u@a/v', password: env:P") == []


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (lambda patch: patch.setattr(cassandra_node, "JARS", Path("/nowhere/c")), "/nowhere/c"),
        (lambda patch: patch.setattr(zookeeper_member, "JARS", Path("/nowhere/z")), "/nowhere/z"),
        (lambda patch: patch.setattr(parts, "CLIENTS", ("no_such_client",)), "no_such_client"),
        (lambda patch: patch.setenv("PATH", "/nowhere"), "java"),
    ],
)
@pytest.mark.usefixtures("parts_are_here")
def test_a_part_that_is_not_here_is_named_with_the_mend(
    monkeypatch: pytest.MonkeyPatch,
    missing: Callable[[pytest.MonkeyPatch], None],
    named: str,
) -> None:
    missing(monkeypatch)
    with pytest.raises(PartsMissing, match=f"no {named}: run `make cluster-parts`"):
        parts.check_parts()
