"""Render the Helm chart with the values of its `ci` folder, and hold the result against schemas.

`make chart` writes deploy/helm/renders anew; `make chart-check` only says where these differ.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from federation.mesh_file import load_mesh

TOP = Path(__file__).parents[1]
CHART = TOP / "deploy" / "helm" / "isthmus"
RENDERS = TOP / "deploy" / "helm" / "renders"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES = ("1.25", "1.34")
"""Oldest version that the chart says to suit, and a recent one."""
# A Helm that is compiled so takes Kubernetes for an old one.
_VERSION = ("--kube-version", KUBERNETES[-1])
RELEASE, NAMESPACE = "mesh", "messaging"
FOREIGN = ("monitoring.coreos.com",)
"""Groups of resources that Kubernetes itself has no schema of."""


def digest() -> str:
    """Return the digest of all that the renders are made from."""
    found = hashlib.sha256()
    for path in sorted(one for one in CHART.rglob("*") if one.is_file()):
        found.update(f"{path.relative_to(CHART)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def render(helm: str, values: Path) -> str:
    """Return the resources that a file of values makes, as YAML."""
    words = (helm, "template", RELEASE, str(CHART), "--namespace", NAMESPACE, *_VERSION)
    done = subprocess.run(
        (*words, "--values", str(values)), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{values.name}: {done.stderr}")
    return f"# Rendered by `make chart`; the chart's digest: {digest()}\n{done.stdout}"


def faults(text: str) -> list[str]:
    """Return where resources break the schemas of Kubernetes."""
    import kubernetes_validate  # of .tools/chart alone

    found = []
    for resource in documents(text):
        if resource["apiVersion"].partition("/")[0] in FOREIGN:
            continue
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(resource, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                name = f"{resource['kind']} {resource['metadata']['name']}"
                place = ".".join(map(str, error.path))
                found.append(f"Kubernetes {version}: {name}: {place}: {error.message}")
    return found


def of_topologies(folder: Path) -> Iterator[Path]:
    """Write values for each mesh to start from, all sites in one release; yield the files."""
    for path in sorted((TOP / "topology_configs").glob("*.yaml")):
        mesh = load_mesh(path)
        sites = {
            name: {"nodes": len(site.nodes.names or "12") if site.nodes else 1}
            for name, site in mesh.sites.items()
        }
        values = folder / path.name
        values.write_text(yaml.safe_dump({"mesh": path.read_text(), "sites": sites}))
        yield values


def documents(text: str) -> list[dict[str, Any]]:
    """Return the resources of a render."""
    return [one for one in yaml.safe_load_all(text) if one]


def main(helm: str, writes: bool) -> int:
    """Render, check and write or compare; return the exit status."""
    lint = (helm, "lint", "--strict", str(CHART), *_VERSION, "--values")
    problems: list[str] = []
    RENDERS.mkdir(exist_ok=True)
    for values in VALUES:
        done = subprocess.run((*lint, str(values)), capture_output=True, text=True, check=False)
        problems += [f"{values.name}: {done.stdout}{done.stderr}"] if done.returncode else []
        text = render(helm, values)
        problems += [f"{values.name}: {fault}" for fault in faults(text)]
        target = RENDERS / values.name
        if writes:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != text:
            problems.append(f"{target.relative_to(TOP)} is out of date: make chart")
    with tempfile.TemporaryDirectory() as folder:
        for values in of_topologies(Path(folder)):
            text = render(helm, values)
            problems += [f"topology_configs/{values.name}: {fault}" for fault in faults(text)]
            print(f"topology_configs/{values.name}: {len(documents(text))} resources")
    print("\n".join(problems) or f"{len(VALUES)} renders are good, and those of topology_configs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--write" in sys.argv))
