"""Costs and impossibilities of a changed mesh file: reported by `plan` and `apply` beforehand, by
`status` while they last.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from federation.lanes import lane_word
from federation.mesh import Mesh, retention_s
from federation.mesh_file.problem import Violation
from federation.wording import counted
from isthmus.display import about
from isthmus.known.known_meshes import KnownMeshes
from isthmus.known.since_applied import SinceApplied
from relay.node.mesh_watch import why_not_cut
from relay.node.site_folder import node_folders, site_folder, slot_folder, slot_folders
from relay.operator.holds import HOLDS_FILE, HoldsBroken, read_holds, was_drained


def cautions(file: Path, mesh: Mesh, since: SinceApplied, state: Path) -> list[str]:
    """Return warnings about applying the file; none prevents the apply."""
    return [
        *(_left_undrained(file, site) for site in since.gone if _was_drained(state, site) is False),
        *(_perhaps_undrained(site) for site in since.gone if _was_drained(state, site) is None),
        *(_still_drains(file, site) for site in mesh.sites if _is_to_leave(state, site)),
        *_shorter_window(mesh, since),
        *_newer_batches(mesh, since),
        *_other_lanes(mesh, since),
        *_other_partitions(mesh, since),
    ]


def refusals(mesh: Mesh, known: KnownMeshes) -> Iterable[Violation]:
    """Yield changes that no node can take up, by the meshes that ran here: mesh name and cluster ID
    are part of every packed batch. A site elsewhere judges by itself.
    """
    yield from _shrunk_clusters(mesh, known)
    is_name_refused = False
    for site, here in mesh.sites.items():
        ran = known.ran_last(site)
        if ran is None:
            continue
        if ran.name != mesh.name:
            if not is_name_refused:
                yield Violation(
                    ("mesh",),
                    f"the nodes that ran here are of mesh `{ran.name}`: a mesh cannot change its "
                    "name, which every batch bears",
                    f"write mesh: {ran.name}; or begin another mesh with another --state",
                )
            is_name_refused = True
        elif site in ran.sites and ran.sites[site].cluster_id != here.cluster_id:
            former = ran.sites[site].cluster_id
            yield Violation(
                ("sites", site, "cluster_id"),
                f"`{site}` ran with the cluster ID `{former}`, which every batch of it bears: it "
                f"cannot become `{here.cluster_id}`",
                f"write cluster_id: {former}; or drain and remove the site, and add it under "
                "another name",
            )
        elif why := why_not_cut(ran, mesh, site):
            yield Violation(("exchanges",), why, "the nodes that run go on with the former number")


def _shrunk_clusters(mesh: Mesh, known: KnownMeshes) -> Iterable[Violation]:
    for site, here in mesh.sites.items():
        ran = known.ran_last(site)
        former = ran.sites[site].brokers if ran is not None and site in ran.sites else 1
        if here.brokers < former and here.broker is None:
            yield Violation(
                ("sites", site, "brokers"),
                f"the private cluster of `{site}` has {former} nodes: those that stay would wait "
                "for those that go",
                f"write brokers: {former}",
            )


def _left_undrained(file: Path, site: str) -> str:
    return (
        f"{site} is taken out of the mesh without having been drained: what its egress queues and "
        f"its log have for others stays there; put it back into {file}, `isthmus drain {file} "
        f"{site}`, then take it out"
    )


def _perhaps_undrained(site: str) -> str:
    return (
        f"{site} is taken out of the mesh; whether it was drained is not known here, only in the "
        "state folder of its node: `isthmus drain` before a site is taken out"
    )


def _still_drains(file: Path, site: str) -> str:
    return (
        f"{site} was told to drain, and so receives nothing: that lasts until `isthmus resume "
        f"{file} --site {site}`"
    )


def left_behind_notes(mesh: Mesh, state: Path) -> list[str]:
    """Return a line for each site that ran here, left the mesh, and was not drained before."""
    known = KnownMeshes(state)
    gone = [site for site in known.sites_that_ran() if site not in mesh.sites]
    return [
        f"{site} is out of the mesh, and was not drained: what its egress queues and its log have "
        "for others stays there; put it back into the file and `isthmus drain` it, or delete "
        f"{state / 'sites' / site} if nobody needs that"
        for site in gone
        if not _was_drained(state, site)
        and (ran := known.ran_last(site)) is not None
        and ran.name == mesh.name
    ]


def _was_drained(state: Path, site: str) -> bool | None:
    """Return True if drained, None if the site's node never ran with the state folder."""
    folder = site_folder(state, site)
    if not folder.is_dir():
        return None
    last = _folder_of_orders(folder)
    slots = len(slot_folders(last))
    if slots == 1:
        return was_drained(last)
    # Each slot is drained at the node that had it last, whichever that is.
    return all(
        any(was_drained(slot_folder(node, slot)) for node in node_folders(folder))
        for slot in range(slots)
    )


def _is_to_leave(state: Path, site: str) -> bool:
    try:
        return read_holds(_folder_of_orders(site_folder(state, site))).draining
    except (HoldsBroken, OSError):
        return False


def _folder_of_orders(folder: Path) -> Path:
    """Return the folder of the node that had the site last: others may have orders from before."""

    def written_at(node: Path) -> int:
        file = node / HOLDS_FILE
        return file.stat().st_mtime_ns if file.exists() else 0

    return max(node_folders(folder), key=written_at)


def _shorter_window(mesh: Mesh, since: SinceApplied) -> Iterable[str]:
    if mesh.outage_window_s >= since.longest_window_s:
        return
    kept, former = about(mesh.retention_s), about(retention_s(since.longest_window_s))
    yield (
        f"a shorter outage window: what the logs have that is older than {kept} (the window and "
        f"its margin; until now {former}) goes at once, and a link or a delivery that still needs "
        "it stops with `gap`: let `isthmus status` show no lag that old before"
    )


def _newer_batches(mesh: Mesh, since: SinceApplied) -> Iterable[str]:
    former = min((one.batch_format for one in since.former.values() if one), default=0)
    if not 0 < former < mesh.batch_format:
        return
    yield (
        f"batches are written in format {mesh.batch_format} from now on (until now {former}): a "
        "node of an older version takes none of them before it is upgraded, and none can go back "
        "to that version before the outage window has passed: let `isthmus doctor` show first that "
        "all nodes read it"
    )


def _other_partitions(mesh: Mesh, since: SinceApplied) -> Iterable[str]:
    """Warn of exchanges whose messages are spread by another number from now on."""
    for name, exchange in mesh.exchanges.items():
        for before in filter(None, since.former.values()):
            was = before.exchanges.get(name)
            if was is not None and was.partitions != exchange.partitions:
                yield (
                    f"exchange {name} has {counted(exchange.partitions, 'partition')} from now on "
                    f"(until now {was.partitions}): `apply` waits until no message of it waits at "
                    "a site, and what is still on its way may come after later messages of its key"
                )
                break


def _other_lanes(mesh: Mesh, since: SinceApplied) -> Iterable[str]:
    for name, exchange in mesh.exchanges.items():
        for before in filter(None, since.former.values()):
            was = before.exchanges.get(name)
            if was is not None and was.lane != exchange.lane:
                former = lane_word(was.lane, before.lanes)
                yield (
                    f"exchange {name} goes in lane {lane_word(exchange.lane, mesh.lanes)} from now "
                    f"on (until now {former}): what is still on its way in the other may come "
                    "after what is published later; each by itself keeps its order"
                )
                break
