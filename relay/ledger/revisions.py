"""Mesh documents of every revision that a site has run, kept with its ledger.

LEDGER/revisions/REVISION.json   {"format": 1, "revision", "taken_up_ms", "mesh": {...}}

Each batch bears its revision, and the document is written before the first batch is packed: so the
audit knows the destinations of each message, and the node knows exchanges that are no longer in the
file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from federation import durable_file
from federation.mesh import Mesh
from federation.mesh_json import BadMeshJson, mesh_as_json, mesh_from_json

log = logging.getLogger(__name__)

_FORMAT = 1


@dataclass(slots=True)
class KeptRevisions:
    """Revisions of one site. `wrote` is called after each writing of a file."""

    folder: Path
    wrote: Callable[[Path], None] = lambda _: None
    _known: dict[str, tuple[int, Mesh]] | None = field(default=None, init=False)
    """Revision -> time when it was taken up last, and its mesh."""

    def keep(self, mesh: Mesh, now_ms: int) -> None:
        """Keep a revision that is taken up now; on the disk on return. Raises OSError.

        A node that starts again with the revision that it ran last keeps the time: audits derive
        from it when a site left the mesh.
        """
        known = self._load()
        last = self.latest()
        if last is not None and last.revision == mesh.revision:
            now_ms = known[mesh.revision][0]
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{mesh.revision}.json"
        content = {
            "format": _FORMAT,
            "revision": mesh.revision,
            "taken_up_ms": now_ms,
            "mesh": mesh_as_json(mesh),
        }
        durable_file.write(file, json.dumps(content, indent=1), durable=True)
        self.wrote(file)
        known[mesh.revision] = (now_ms, mesh)

    def load(self) -> None:
        """Read the files anew, since another has written them."""
        self._known = None

    def retired(self, mesh: Mesh) -> list[Mesh]:
        """Earlier meshes of the same name, the latest first."""
        earlier = [
            kept
            for revision, kept in self._load().items()
            if revision != mesh.revision and kept[1].name == mesh.name
        ]
        return [one for _, one in sorted(earlier, key=lambda kept: kept[0], reverse=True)]

    def lately(self, mesh: Mesh, since_ms: int) -> list[Mesh]:
        """Earlier meshes that were in force at `since_ms` or later."""
        known, found = self._load(), []
        replaced_ms = known[mesh.revision][0] if mesh.revision in known else None
        for former in self.retired(mesh):
            if replaced_ms is None or replaced_ms >= since_ms:
                found.append(former)
            replaced_ms = known[former.revision][0]
        return found

    def latest(self) -> Mesh | None:
        """Mesh that was taken up last, or None if none ever was."""
        known = self._load().values()
        return max(known, key=lambda kept: kept[0])[1] if known else None

    def _load(self) -> dict[str, tuple[int, Mesh]]:
        if self._known is None:
            self._known = {}
            for file in sorted(self.folder.glob("*.json")):
                try:
                    content = json.loads(file.read_text(encoding="utf-8"))
                    mesh = _mesh_of(json.dumps(content["mesh"]))
                    self._known[content["revision"]] = (int(content["taken_up_ms"]), mesh)
                except (ValueError, KeyError, TypeError, BadMeshJson) as error:
                    # Needed only for exchanges that left the file, so no reason to stop.
                    log.error(
                        "%s cannot be read: %r", file, error, extra={"event": "revision-unreadable"}
                    )
        return self._known


@lru_cache(maxsize=64)
def _mesh_of(text: str) -> Mesh:
    """Decode a mesh, as one object for all sites of a process: with hundreds of sites a mesh is
    megabytes.
    """
    return mesh_from_json(json.loads(text))
