"""The container files agree with each other, with the mesh file and with the commands.

There may be no container engine here: what is held is everything that can be told without one.
"""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from federation.brokers.broker_uri import parse_admin, parse_amqp, parse_management, parse_stream
from federation.mesh import Mesh
from federation.mesh_file import read_mesh
from isthmus.brokers.config import enabled_plugins
from isthmus.cli import app
from relay.admin.access import SHORTEST_TOKEN

TOP = Path(__file__).parents[2]
DOCKER = TOP / "docker"
IN_CONTAINER = "/etc/isthmus/${MESH_FILE:-mesh.yaml}"
CLUSTER = ["cluster"]
"""Profiles of the services of the site that has several nodes."""


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


def mesh_of(name: str) -> Mesh:
    reading = read_mesh(DOCKER / "mesh" / name)
    assert all("no file /certificates/" in problem.wrong for problem in reading.problems)
    assert reading.mesh is not None
    return reading.mesh


@pytest.fixture
def mesh() -> Mesh:
    return mesh_of("mesh.yaml")


@pytest.fixture
def wider_mesh() -> Mesh:
    """The mesh with the site of two nodes."""
    return mesh_of("mesh-cluster.yaml")


def command_of(service: dict[str, Any]) -> str:
    """The service's command, after having been parsed as `isthmus` itself does."""
    name, *words = service["command"].split()
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, list(words))
    assert words[0] == IN_CONTAINER
    assert f"./mesh:{Path(IN_CONTAINER).parent}:ro" in service["volumes"]
    return service["command"]


def test_every_site_has_a_broker_that_its_addresses_name(compose, mesh, wider_mesh):
    for name, site in wider_mesh.sites.items():
        broker = compose["services"][name]
        assert broker.get("profiles", []) == ([] if name in mesh.sites else CLUSTER)
        assert broker["image"].startswith("rabbitmq:4.0")
        assert broker["hostname"] == name
        assert site.broker is not None
        assert (parse_amqp(site.broker.amqp).host, parse_amqp(site.broker.amqp).port) == (
            name,
            5672,
        )
        assert (parse_stream(site.broker.stream).host) == name
        assert (parse_management(site.broker.management).host) == name
        user = broker["environment"]["RABBITMQ_DEFAULT_USER"]
        assert parse_amqp(site.broker.amqp).user == user


def test_every_site_has_a_node_that_serves_it(compose, mesh):
    nodes = [each for each in compose["services"] if each.endswith("-node")]
    assert sorted(nodes) == sorted(f"{site}-node" for site in mesh.sites)
    for site in mesh.sites:
        node = compose["services"][f"{site}-node"]
        assert f" --site {site} " in command_of(node)
        assert f"{site}-state:/var/lib/isthmus" in node["volumes"]
        _, program, name, *words = node["healthcheck"]["test"]
        assert (Path(program).name, name) == ("isthmus", "health")
        assert f"--state {words[1]} " in f"{node['command']} "
        typer.main.get_command(app).commands[name].make_context(name, list(words))


def test_the_site_of_two_nodes_has_both_with_the_servers_that_they_share(compose, mesh, wider_mesh):
    (lima,) = (site for name, site in wider_mesh.sites.items() if name not in mesh.sites)
    assert wider_mesh.exchanges == mesh.exchanges
    hosts = [lima.nodes.zookeeper.hosts, lima.nodes.cassandra.hosts]
    assert hosts == [("zookeeper:2181",), ("cassandra:9042",)]
    states = set()
    for name in lima.nodes.names:
        node = compose["services"][name]
        assert node["profiles"] == CLUSTER
        assert " --site lima " in command_of(node)
        # A node that is not told its name has that of its host.
        assert node["hostname"] == name
        assert parse_admin(lima.admin_of(name)).host == name
        assert name in compose["services"]["certificates"]["command"]
        states |= {volume for volume in node["volumes"] if volume.endswith(":/var/lib/isthmus")}
        waited = {name for name, of in node["depends_on"].items() if "healthy" in of["condition"]}
        assert waited == {"zookeeper", "cassandra"}
    assert len(states) == 2
    for name in ("zookeeper", "cassandra"):
        server = compose["services"][name]
        assert (server["profiles"], server["hostname"]) == (CLUSTER, name)
        assert server["healthcheck"]["test"][0] == "CMD"


def test_the_brokers_are_declared_before_a_node_starts(compose, mesh, wider_mesh):
    services = compose["services"]
    assert command_of(services["apply"]).startswith("apply ")
    brokers = services["apply"]["depends_on"]
    assert set(brokers) == {*wider_mesh.sites, "certificates"}
    assert [name for name, of in brokers.items() if not of.get("required", True)] == ["lima"]
    for site in mesh.sites:
        waits_for = services[f"{site}-node"]["depends_on"]
        done = {"condition": "service_completed_successfully"}
        assert waits_for == {"apply": done, "certificates": done}


def test_nodes_show_certificates_that_prometheus_trusts(compose, mesh, tmp_path):
    made = compose["services"]["certificates"]
    _, script, folder = made["entrypoint"]
    assert f"certificates:{folder}" in made["volumes"]
    words = [sys.executable, DOCKER / Path(script).name, tmp_path, *made["command"]]
    subprocess.run(words, check=True)
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    showing = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    showing.load_cert_chain(tmp_path / "node.pem", tmp_path / "node.key")
    for site in mesh.sites.values():
        address = parse_admin(site.admin)
        assert compose["services"][f"{site.name}-node"]["hostname"] == address.host
        shake_hands(trusting, showing, address.host)
        access = site.admin_access
        assert {access.tls.certificate, access.tls.key, access.tls.ca} == {
            f"/certificates/{name}" for name in ("node.pem", "node.key", "ca.pem")
        }
        assert access.token == "file:/certificates/admin.token"
        assert (
            "certificates:/certificates:ro" in compose["services"][f"{site.name}-node"]["volumes"]
        )
    before = (tmp_path / "node.pem").read_bytes()
    assert len((tmp_path / "admin.token").read_text().strip()) >= SHORTEST_TOKEN
    subprocess.run(words, check=True)
    assert (tmp_path / "node.pem").read_bytes() == before, "another start makes no others"
    (tmp_path / "ca.pem").unlink()
    subprocess.run(words, check=True)
    assert (tmp_path / "node.pem").read_bytes() != before


def shake_hands(trusting: ssl.SSLContext, showing: ssl.SSLContext, name: str) -> None:
    """Have a client that trusts speak TLS with a server; raises SSLError if it does not trust."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = showing.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        for one in list(waiting):
            try:
                one.do_handshake()
                waiting.remove(one)
            except ssl.SSLWantReadError:
                pass


def test_prometheus_asks_every_node_and_grafana_asks_prometheus(compose, mesh, wider_mesh):
    config = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    job, found = config["scrape_configs"]
    addresses = [parse_admin(site.admin) for site in mesh.sites.values()]
    asked = [{"targets": [f"{address.host}:{address.port}" for address in addresses]}]
    assert job["static_configs"] == asked
    (discovery,) = found["dns_sd_configs"]
    lima = wider_mesh.sites["lima"]
    assert sorted(discovery["names"]) == sorted(lima.nodes.names)
    assert discovery["port"] == parse_admin(lima.admin_of("x")).port
    prometheus, grafana = (compose["services"][name] for name in ("prometheus", "grafana"))
    assert prometheus["profiles"] == grafana["profiles"] == ["observe"]
    mounted = {volume.split(":")[1] for volume in prometheus["volumes"]}
    assert set(config["rule_files"]) <= mounted
    (source,) = yaml.safe_load((DOCKER / "grafana" / "datasource.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (boards,) = yaml.safe_load((DOCKER / "grafana" / "boards.yaml").read_text())["providers"]
    targets = [volume.split(":")[1] for volume in grafana["volumes"]]
    assert sum(target.startswith(boards["options"]["path"]) for target in targets) == 2


def test_every_volume_is_declared_and_every_mounted_file_is_there(compose):
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists()
            else:
                assert source in compose["volumes"]


def test_no_two_services_publish_the_same_port_and_none_beyond_this_machine(compose):
    published = [port for each in compose["services"].values() for port in each.get("ports", ())]
    assert len({port.rpartition(":")[0] for port in published}) == len(published) == 10
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_no_password_is_written_down(compose):
    for service in compose["services"].values():
        for name, value in service["environment"].items():
            if "PASS" in name:
                assert value.startswith("${RELAY_PASSWORD:?")


def test_the_containers_run_the_plugins_that_private_brokers_run():
    assert (DOCKER / "enabled_plugins").read_text() == enabled_plugins()


def test_the_image_holds_every_package_and_what_it_is_built_from():
    dockerfile = (DOCKER / "Dockerfile").read_text()
    let_in = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    for needed in [package.removesuffix("*") for package in packages] + ["pyproject.toml"]:
        assert needed in copied
    for source in copied:
        assert (TOP / source).exists()
        assert f"!{source}" in let_in


def test_the_image_gets_the_versions_that_are_tested():
    def versions(lock: Path) -> set[str]:
        return set(re.findall(r"^[a-z0-9.-]+==[^ ]+", lock.read_text(), re.MULTILINE))

    node = versions(DOCKER / "requirements.lock")
    tested = versions(TOP / "requirements.lock") | versions(TOP / "requirements-cluster.lock")
    assert node < tested
    # Sites of several nodes, and traces, from the same image.
    for package in ("cassandra-driver==", "opentelemetry-sdk=="):
        assert any(each.startswith(package) for each in node)
    assert not any(each.startswith(("pytest==", "mypy==")) for each in node)
