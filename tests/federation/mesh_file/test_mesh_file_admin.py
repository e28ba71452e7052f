"""`admin:` of a site: loopback in clear, or TLS and a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh import LOCAL_ADMIN, AdminAccess, Site, TlsFiles
from federation.mesh_file import load_mesh
from federation.mesh_json import mesh_as_json, mesh_from_json
from tests.federation.meshes import errors_of, mesh_of, problems_of

PAIR = "certificate: /dev/null, key: /dev/null"


def file_with(admin: str) -> str:
    return f"""
        mesh: acme
        topology: complete
        exchanges: [{{name: orders}}]
        sites: {{paris: {{}}, tokyo: {{admin: {admin}}}}}
        """


def tokyo(admin: str) -> Site:
    return mesh_of(file_with(admin)).sites["tokyo"]


def test_a_text_is_short_for_its_url() -> None:
    assert tokyo('"http://127.0.0.1:8080"') == tokyo('{url: "http://127.0.0.1:8080"}')
    assert tokyo('"http://127.0.0.1:8080"').admin == "http://127.0.0.1:8080"
    assert tokyo('"http://localhost:8080"').admin_access == LOCAL_ADMIN


def test_paths_are_relative_to_the_mesh_file(tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem", "ca.pem"):
        (tmp_path / name).touch()
    file = tmp_path / "mesh.yaml"
    admin = "{url: 'https://t.example:8443', token: 'file:t', certificate: c.pem, key: k.pem}"
    file.write_text(
        "mesh: acme\ntopology: complete\nexchanges: [{name: orders}]\n"
        f"sites: {{paris: {{}}, tokyo: {{admin: {admin}}}}}\n"
    )
    mesh = load_mesh(file)
    assert mesh.sites["tokyo"].admin_access == AdminAccess(
        f"file:{tmp_path}/t", TlsFiles("", f"{tmp_path}/c.pem", f"{tmp_path}/k.pem")
    )
    assert mesh_from_json(mesh_as_json(mesh)).sites == mesh.sites
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "mesh.yaml").write_text(file.read_text())
    assert load_mesh(other / "mesh.yaml").revision == mesh.revision


@pytest.mark.parametrize(
    "admin",
    [
        '"http://127.0.0.1:8080"',
        '"http://[::1]:8080"',
        f'{{url: "https://t.example:8443", token: "env:T", {PAIR}}}',
        '{url: "https://proxy.example:8443", token: "env:T", ca: /dev/null}',
        f'{{url: "https://127.0.0.1:8443", token: "env:T", {PAIR}}}',
    ],
)
def test_these_are_good(admin: str) -> None:
    assert errors_of(file_with(admin)) == []


@pytest.mark.parametrize(
    ("admin", "said"),
    [
        ('"http://10.1.2.3:8080"', "not loopback tells everybody there all of the status; write"),
        ('"http://0.0.0.0:8080"', "not loopback tells everybody"),
        ('"http://t.example:8080"', "not loopback tells everybody"),
        ('"https://t.example:8443"', "https without a token lets everybody there know"),
        (f'{{url: "https://t.example:8443", {PAIR}}}', "https without a token"),
        ('{url: "http://127.0.0.1:1", token: "env:T"}', "a `token` for an address that begins"),
        ('{url: "http://127.0.0.1:1", key: k}', "a `key` for an address that begins"),
        ('{url: "https://t:8443", token: secret}', "a token does not stand in the mesh file"),
        ('{url: "https://t:8443", token: "env:T", certificate: c}', "without its `key`; add key"),
        ('{url: "https://t:8443", token: "env:T", key: k}', "without its `certificate`; add cert"),
        ('{token: "env:T"}', "`url` is missing"),
        ("8080", "write http://127.0.0.1:PORT"),
        ('"http://127.0.0.1"', "the node's address has no port"),
    ],
)
def test_what_is_wrong_is_said_with_its_mend(admin: str, said: str) -> None:
    told = [str(one) for one in errors_of(file_with(admin))]
    assert [one for one in told if said in one], told


def test_a_file_that_is_not_here_is_warned_of() -> None:
    admin = '{url: "https://t:8443", token: "env:T", certificate: nowhere.pem, key: /dev/null}'
    told = [str(one) for one in problems_of(file_with(admin))]
    assert [one for one in told if "there is no file nowhere.pem here" in one], told


CLUSTER = ", cluster: {zookeeper: z:2181, cassandra: {hosts: c:9042}}"
EACH = "{url: 'https://{node}.example:8443', token: 'file:t'}"


def wrong(text: str) -> list[str]:
    return [one.wrong for one in errors_of(text)]


def test_each_of_several_nodes_may_have_an_address_of_its_own() -> None:
    site = tokyo(f"{EACH}, nodes: [a, b]{CLUSTER}")
    assert site.far_nodes == ("a", "b")
    assert [site.admin_of(node) for node in site.far_nodes] == [
        "https://a.example:8443",
        "https://b.example:8443",
    ]
    one = tokyo(f"{{url: 'https://t.example:8443', token: 'file:t'}}, nodes: [a, b]{CLUSTER}")
    assert (one.far_nodes, one.admin_of("a")) == ((), "https://t.example:8443")


@pytest.mark.parametrize("nodes", ["", CLUSTER, f", nodes: any{CLUSTER}"])
def test_the_names_of_nodes_have_to_be_in_the_file_to_stand_in_an_address(nodes: str) -> None:
    said = "`{node}` stands for the names of the site's nodes, which the file lacks"
    assert wrong(file_with(EACH + nodes)) == [said]


def test_the_name_of_a_node_stands_in_an_address_alone() -> None:
    several = f", nodes: [a]{CLUSTER}"
    path = EACH.replace("file:t", "file:{node}.token") + several
    assert wrong(file_with(path)) == ["`{node}` stands for a name in `url` alone"]
    elsewhere = file_with(EACH + several).replace("mesh: acme", "mesh: acme-{node}")
    assert len(wrong(elsewhere)) == 1
