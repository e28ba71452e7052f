"""Changes of a mesh file since the last apply, by the records of the state folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from federation.brokers.applied import applied_revision, read_applied_mesh
from federation.mesh import Mesh
from federation.mesh_diff import mesh_diff


@dataclass(frozen=True, slots=True)
class SinceApplied:
    """Changes since the last apply. `former` maps each revision of a site to its mesh, or None if
    not kept; `new_sites` counts sites without an apply.
    """

    mesh: Mesh
    former: Mapping[str, Mesh | None]
    new_sites: int

    @property
    def changes(self) -> dict[str, list[str] | None]:
        """Differences by former revision, in words of the file; None if unknown."""
        return {
            revision: None if before is None else mesh_diff(before, self.mesh)
            for revision, before in self.former.items()
        }

    @property
    def gone(self) -> list[str]:
        """Sites no longer in the file."""
        before = [site for one in self.former.values() if one is not None for site in one.sites]
        return [site for site in dict.fromkeys(before) if site not in self.mesh.sites]

    @property
    def longest_window_s(self) -> float:
        """Longest applied outage window, or 0 if unknown."""
        return max((one.outage_window_s for one in self.former.values() if one), default=0.0)

    def lines(self) -> list[str]:
        revision = self.mesh.revision
        if self.new_sites and not self.former:
            return [f"revision {revision}: applied for the first time from this state folder"]
        if list(self.former) == [revision]:
            return [f"revision {revision}: as applied before"]
        shown = []
        for before, lines in self.changes.items():
            if before == revision:
                continue
            differences = ["  (what it was is not known)"] if lines is None else lines
            shown += [
                f"revision {revision}, before {before}:",
                *(f"  {line}" for line in differences),
            ]
        return shown

    def as_object(self) -> dict[str, object]:
        return {"changes_since": self.changes}


def changes_since_applied(mesh: Mesh, sites: Sequence[str], state: Path) -> SinceApplied:
    """Compare the mesh with the last apply at the sites from the state folder."""
    revisions = [applied_revision(state, mesh.name, site) for site in sites]
    former = {
        revision: read_applied_mesh(state, mesh.name, revision)
        for revision in filter(None, dict.fromkeys(revisions))
    }
    return SinceApplied(mesh, former, revisions.count(None))
