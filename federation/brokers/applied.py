"""Record of the last `apply` at a site, from which later runs learn, without a management API, what
is no longer wanted, and which mesh was applied. STATE/applied has a small file for each site, and
the mesh documents of the revisions that these files name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from federation import durable_file
from federation.brokers.provision import BindingDeclaration
from federation.mesh import Mesh
from federation.mesh_json import mesh_as_json, mesh_from_json

_FORMAT = 1


class AppliedRecordBroken(Exception):
    """The record cannot be read. After its deletion `apply` reports what cannot be unbound any
    more.
    """

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"{file}: {reason}; delete it and apply again")


@dataclass(frozen=True, slots=True)
class Applied:
    """Bindings, and egress queues known to exist (`queues`), bound or not."""

    bindings: frozenset[BindingDeclaration] = frozenset()
    queues: frozenset[str] = frozenset()


def read_applied(state: Path, mesh: str, site: str) -> Applied | None:
    """Return the record of a site, or None if there is none. Raises AppliedRecordBroken."""
    file = _file(state, mesh, site)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise AppliedRecordBroken(file, f"format {content['format']!r} is not known")
        bindings = (
            BindingDeclaration(str(exchange), str(destination), str(key), to_exchange=bool(rest))
            for exchange, destination, key, *rest in content["bindings"]
        )
        return Applied(frozenset(bindings), frozenset(map(str, content["queues"])))
    except (ValueError, KeyError, TypeError) as error:
        raise AppliedRecordBroken(file, f"damaged: {error!r}") from error


def write_applied(state: Path, mesh: str, site: str, revision: str, applied: Applied) -> None:
    """Record the present state of a site."""
    content = {
        "format": _FORMAT,
        "revision": revision,
        "bindings": sorted(map(_binding, applied.bindings)),
        "queues": sorted(applied.queues),
    }
    file = _file(state, mesh, site)
    file.parent.mkdir(parents=True, exist_ok=True)
    durable_file.write(file, json.dumps(content, indent=1))


def _binding(binding: BindingDeclaration) -> list[str | bool]:
    """Return a binding for the record: a fourth field only where former commands fail anyway."""
    fields = [binding.exchange, binding.queue, binding.key]
    return [*fields, True] if binding.to_exchange else [*fields]


def applied_revision(state: Path, mesh: str, site: str) -> str | None:
    """Return the revision applied last at the site from this state folder, or None if unknown."""
    try:
        content = json.loads(_file(state, mesh, site).read_text(encoding="utf-8"))
        return str(content["revision"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_applied_mesh(state: Path, mesh: str, revision: str) -> Mesh | None:
    """Return the mesh of a revision applied from this state folder, or None if no document was
    kept.
    """
    try:
        text = _mesh_file(state, mesh, revision).read_text(encoding="utf-8")
        return mesh_from_json(json.loads(text))
    except (OSError, ValueError):
        return None


def write_applied_mesh(state: Path, mesh: Mesh) -> None:
    """Keep the mesh of a revision being applied, and drop the documents of revisions that no site's
    record names any more.
    """
    file = _mesh_file(state, mesh.name, mesh.revision)
    file.parent.mkdir(parents=True, exist_ok=True)
    durable_file.write(file, json.dumps(mesh_as_json(mesh), indent=1))
    named = {mesh.revision}
    for record in file.parent.glob(f"{mesh.name}.*.json"):
        named.add(applied_revision(state, mesh.name, record.name.split(".")[1]) or "")
    for kept in file.parent.glob(f"{mesh.name}.revision.*.json"):
        if kept.name.split(".")[2] not in named:
            kept.unlink(missing_ok=True)


def _mesh_file(state: Path, mesh: str, revision: str) -> Path:
    return state / "applied" / f"{mesh}.revision.{revision}.json"


def _file(state: Path, mesh: str, site: str) -> Path:
    return state / "applied" / f"{mesh}.{site}.json"
