"""What a changed mesh file means for one site's node. Pure.

A node takes up a new file part by part. Two things it cannot: another name for its mesh or for its
own site, which stand in every name and every batch that it has made. That is refused, and what was
there goes on.
"""

from __future__ import annotations

from federation.mesh import Mesh


def why_refused(now: Mesh, new: Mesh, site: str) -> str:
    """Why the node of `site` cannot take up the new mesh; empty if it can."""
    if new.name != now.name:
        return (
            f"the file names the mesh {new.name!r}, this node runs {now.name!r}: a mesh cannot "
            "change its name; end it and begin another"
        )
    here = new.sites.get(site)
    if here is not None and here.cluster_id != now.sites[site].cluster_id:
        return (
            f"the file gives {site} the cluster ID {here.cluster_id!r}, its batches bear "
            f"{now.sites[site].cluster_id!r}: a site cannot change it; put the former back, or "
            "drain and remove the site and add it under another name"
        )
    return ""


def why_over(new: Mesh, site: str, *, is_drained: bool) -> str:
    """Why the node of `site` has to end; empty if it goes on."""
    if site in new.sites:
        return ""
    gone = f"{site} is no site of the mesh file any more (revision {new.revision})"
    if is_drained:
        return f"{gone}; it was drained: nobody lacks anything of it"
    return (
        f"{gone}, and it was not drained: what its egress queues and its log have for others is "
        "kept there, and goes on when the site is put back; then `isthmus drain` it first. Put it "
        "back with `from: start`, so that it gets what others publish meanwhile"
    )
