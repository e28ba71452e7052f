"""Where `isthmus relay` has its process tell its status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import typer

from isthmus.commands.relay import _admin_of
from tests.federation.meshes import mesh_of

FAR = "{url: 'https://a.example:8443', token: 'env:T', certificate: /c.pem, key: /k.pem}"
FILE = """\
mesh: acme
topology: complete
exchanges: [{{name: orders}}]
sites: {sites}
"""


def admin_of(a: str, b: str = "", **told: object) -> tuple[int, str, object]:
    """For the sites a and b in one process."""
    said = {"a": a, "b": b}
    sites = [f"{name}: {{{f'admin: {one}' if one else ''}}}" for name, one in said.items()]
    mesh = mesh_of(FILE.format(sites=f"{{{', '.join(sites)}}}"))
    places = [(site, "", Path()) for site in said]
    return _admin_of(mesh, places, *(told.get(key) for key in ("host", "port")))  # type: ignore[arg-type]


def test_the_admin_port_is_a_free_one_of_loopback_by_default() -> None:
    assert admin_of("") == (0, "127.0.0.1", None)
    assert admin_of("", port=15690) == (15690, "127.0.0.1", None)
    assert admin_of("http://127.0.0.2:8080") == (8080, "127.0.0.2", None)
    assert admin_of("http://127.0.0.2:8080", port=1, host="127.0.0.3") == (1, "127.0.0.3", None)


def test_with_a_certificate_it_is_for_other_machines_too() -> None:
    port, host, afar = admin_of(FAR)
    assert (port, host) == (0, "127.0.0.1")
    assert (afar.host, afar.port) == ("a.example", 8443)  # type: ignore[attr-defined]
    assert (afar.certificate, afar.key) == ("/c.pem", "/k.pem")  # type: ignore[attr-defined]
    _, _, afar = admin_of(FAR, host="10.0.0.1", port=1)
    assert (afar.host, afar.port) == ("10.0.0.1", 1)  # type: ignore[attr-defined]


def test_behind_a_proxy_it_stays_on_loopback() -> None:
    proxy = "{url: 'https://proxy.example:8443', token: 'env:T'}"
    assert admin_of(proxy, port=8080) == (8080, "127.0.0.1", None)


def test_a_mesh_of_before_goes_on_without_the_address_in_clear(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mesh = mesh_of(FILE.format(sites="{a: {admin: 'http://127.0.0.1:8080'}, b: {}}"))
    sites = {**mesh.sites, "a": replace(mesh.sites["a"], admin="http://10.0.0.1:8080")}
    assert _admin_of(replace(mesh, sites=sites), [("a", "", Path())], None, None) == (
        *(8080, "127.0.0.1", None),
    )
    assert "http://10.0.0.1:8080 is in clear" in capsys.readouterr().err


def test_a_node_of_several_has_its_own_address() -> None:
    cluster = "nodes: [x, y], cluster: {zookeeper: z:1, cassandra: {hosts: c:1}}"
    admin = FAR.replace("a.example", "{node}.example")
    mesh = mesh_of(FILE.format(sites=f"{{a: {{admin: {admin}, {cluster}}}, b: {{}}}}"))
    _, _, afar = _admin_of(mesh, [("a", "y", Path())], None, None)
    assert afar is not None
    assert (afar.host, afar.port) == ("y.example", 8443)


def test_sites_of_one_process_share_an_admin_port() -> None:
    with pytest.raises(typer.Exit):
        admin_of("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert admin_of("http://127.0.0.1:1", "http://127.0.0.1:1")[0] == 1
