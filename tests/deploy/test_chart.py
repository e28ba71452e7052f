"""The Helm chart's renders are current, start nodes by the command, and give them few rights.

`make chart` renders them by Helm, and holds them against the schemas of Kubernetes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from federation.mesh_file import parse_mesh
from isthmus.cli import app
from scripts import chart

RENDERS = [chart.RENDERS / values.name for values in chart.VALUES]
EACH = pytest.mark.parametrize("render", RENDERS, ids=lambda path: path.stem)


def of_kind(render: Path, kind: str) -> list[dict[str, Any]]:
    return [one for one in chart.documents(render.read_text()) if one["kind"] == kind]


def pods(render: Path) -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in of_kind(render, "StatefulSet")]


@EACH
def test_a_render_is_of_the_chart_as_it_is(render: Path) -> None:
    assert chart.digest() in render.read_text().partition("\n")[0], "run: make chart"


def test_there_is_no_render_without_its_values() -> None:
    assert {path.name for path in RENDERS} == {path.name for path in chart.RENDERS.iterdir()}


@EACH
def test_a_node_is_started_and_asked_by_commands_that_there_are(render: Path) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    for pod in pods(render):
        (node,) = pod["containers"]
        calls = [node["args"]]
        for probe in ("livenessProbe", "readinessProbe"):
            program, *words = node[probe]["exec"]["command"]
            assert Path(program).name == "isthmus"
            calls.append(words)
        for name, *words in calls:
            group.commands[name].make_context(name, list(words))
        assert {"--site", "--state"} <= set(node["args"])


@EACH
def test_a_pod_has_no_rights_and_writes_to_its_volumes_alone(render: Path) -> None:
    for pod in pods(render):
        (node,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert node["securityContext"]["readOnlyRootFilesystem"] is True
        assert node["securityContext"]["allowPrivilegeEscalation"] is False
        assert node["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        writable = {one["name"] for one in node["volumeMounts"] if not one.get("readOnly")}
        assert writable == {"state", "scratch"}


@EACH
def test_the_image_and_the_pod_agree_on_user_and_state(render: Path) -> None:
    dockerfile = (chart.TOP / "docker" / "Dockerfile").read_text()
    for pod in pods(render):
        assert f"USER {pod['securityContext']['runAsUser']}\n" in dockerfile
        (state,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "state"]
        assert f"VOLUME {state['mountPath']}\n" in dockerfile


@EACH
def test_services_and_budgets_choose_the_pods_of_their_site(render: Path) -> None:
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in of_kind(render, "StatefulSet")
    }
    services = of_kind(render, "Service")
    assert {one["metadata"]["name"] for one in services} == set(labels)
    for service in services:
        own = labels[service["metadata"]["name"]]
        assert service["spec"]["selector"].items() <= own.items()
    for budget in of_kind(render, "PodDisruptionBudget"):
        own = labels[budget["metadata"]["name"]]
        assert budget["spec"]["selector"]["matchLabels"].items() <= own.items()


@EACH
def test_no_secret_stands_in_a_render(render: Path) -> None:
    assert of_kind(render, "Secret") == []
    for pod in pods(render):
        assert all("valueFrom" in one for one in pod["containers"][0]["env"])


def test_a_mesh_file_among_the_values_is_mounted_as_it_is() -> None:
    (render,) = [path for path in RENDERS if path.stem == "all-sites"]
    (mesh,) = of_kind(render, "ConfigMap")
    reading = parse_mesh(mesh["data"]["mesh.yaml"].encode(), "mesh.yaml")
    assert reading.problems == ()
    assert reading.mesh is not None
    sites = {pod["containers"][0]["args"][3] for pod in pods(render)}
    assert sites == set(reading.mesh.sites)
    for pod in pods(render):
        (volume,) = [one for one in pod["volumes"] if one["name"] == "mesh"]
        assert volume["configMap"]["name"] == mesh["metadata"]["name"]


def test_a_node_is_open_to_others_only_where_its_site_has_an_admin_address() -> None:
    for render in RENDERS:
        has_admin = render.stem == "one-site"
        for pod in pods(render):
            assert ("--admin-host" in pod["containers"][0]["args"]) is has_admin
            assert ("ports" in pod["containers"][0]) is has_admin


@pytest.mark.long
def test_the_renders_are_those_of_helm_and_fit_the_schemas_of_kubernetes() -> None:
    done = subprocess.run(
        ("make", "chart-check"), cwd=chart.TOP, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
