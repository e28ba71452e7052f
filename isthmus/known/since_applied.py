"""What a mesh file has that was not applied yet, by the records of the state folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from federation.brokers.applied import applied_revision, read_applied_mesh
from federation.mesh import Mesh
from federation.mesh_diff import mesh_diff


@dataclass(frozen=True, slots=True)
class SinceApplied:
    """`former` are the revisions that some sites are at, each with its mesh; None where that was
    not kept. `new_sites`: at how many nothing was applied yet.
    """

    mesh: Mesh
    former: Mapping[str, Mesh | None]
    new_sites: int

    @property
    def changes(self) -> dict[str, list[str] | None]:
        """Revision -> the differences from there, in the words of the file; None if unknown."""
        return {
            revision: None if before is None else mesh_diff(before, self.mesh)
            for revision, before in self.former.items()
        }

    @property
    def gone(self) -> list[str]:
        """Sites that the file does not have any more."""
        before = [site for one in self.former.values() if one is not None for site in one.sites]
        return [site for site in dict.fromkeys(before) if site not in self.mesh.sites]

    @property
    def longest_window_s(self) -> float:
        """The longest outage window that was applied; 0 if nobody knows of any."""
        return max((one.outage_window_s for one in self.former.values() if one), default=0.0)

    def lines(self) -> list[str]:
        """For people."""
        revision = self.mesh.revision
        if self.new_sites and not self.former:
            return [f"revision {revision}: applied for the first time from this state folder"]
        if list(self.former) == [revision]:
            return [f"revision {revision}: as applied before"]
        said = []
        for before, lines in self.changes.items():
            if before == revision:
                continue
            told = ["  (what it was is not known)"] if lines is None else lines
            said += [f"revision {revision}, before {before}:", *(f"  {line}" for line in told)]
        return said

    def as_object(self) -> dict[str, object]:
        """For programs."""
        return {"changes_since": self.changes}


def changes_since_applied(mesh: Mesh, sites: Sequence[str], state: Path) -> SinceApplied:
    """Compare the file with what was applied last at these sites, from this state folder."""
    revisions = [applied_revision(state, mesh.name, site) for site in sites]
    former = {
        revision: read_applied_mesh(state, mesh.name, revision)
        for revision in filter(None, dict.fromkeys(revisions))
    }
    return SinceApplied(mesh, former, revisions.count(None))
