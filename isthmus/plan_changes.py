"""What `apply` would change, by the record of the last one. Touches no broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from federation.applied import applied_revision
from federation.mesh import Mesh
from isthmus.commands.apply import changes_since_applied


def changes_of(mesh: Mesh, state: Path) -> dict[str, Any]:
    """`known` is false if nothing was applied from this folder. `changes` are by revision that
    some site is at: the differences from there in the words of the mesh file, None if that
    revision's mesh was not kept. `never` are sites that nothing was applied at from here.
    """
    never = [site for site in mesh.sites if applied_revision(state, mesh.name, site) is None]
    since = changes_since_applied(mesh, list(mesh.sites), state)
    return {
        "state": str(state),
        "known": len(never) < len(mesh.sites),
        "revision": mesh.revision,
        "changes": {
            revision: lines for revision, lines in since.former.items() if revision != mesh.revision
        },
        "never": never,
    }
