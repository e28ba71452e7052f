"""Multicast group in a plan: its sites, its exchanges, and the copies that it saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import RenderableType
from rich.markup import escape

from federation.lanes import show_rate
from federation.mesh import Exchange, Mesh
from federation.multicast import group_sites, why_by_links
from federation.planning.site_classes import SiteGroups
from federation.planning.uplink_copies import UplinkCopies, uplink_copies
from isthmus.display import JsonObject, fill, table_of

GROUP_WORDS = (
    "Ways and availability are of the links alone, which bring whatever the group does not: no"
    " promise rests on the group. Copies: of a byte on a site's line, of an exchange that goes over"
    " the group; heads of datagrams (some 10 %) and repairs (a quarter at most) come on top."
)


def group_report(mesh: Mesh, groups: SiteGroups) -> JsonObject | None:
    """Return the group as a JSON object; None where the mesh has none."""
    group = mesh.group
    if group is None:
        return None
    members = group_sites(mesh)
    others = [site for site in mesh.sites if site not in members]
    return {
        "address": group.address,
        "port": group.port,
        "rate": group.rate,
        "members": [site for site in mesh.sites if site in members],
        "members_said": groups.in_words(members),
        "others": others,
        "replayers": list(group.replayers),
        "copies": list(_copy_rows(mesh, groups)),
    }


def over_group(mesh: Mesh, exchange: Exchange) -> JsonObject | None:
    """Return whether an exchange goes over the group, and why not; None where there is no group."""
    if mesh.group is None:
        return None
    why = why_by_links(mesh, exchange)
    return {"goes": not why, "why": why}


def _copy_rows(mesh: Mesh, groups: SiteGroups) -> Iterator[JsonObject]:
    """Yield a row for all sites with the same copies."""
    alike: dict[UplinkCopies, list[str]] = {}
    for site, copies in uplink_copies(mesh).items():
        alike.setdefault(copies, []).append(site)
    for copies, sites in alike.items():
        yield {"label": groups.in_words(sites), "sites": sites, **asdict(copies)}


def group_parts(group: JsonObject | None, most: int) -> Iterator[RenderableType]:
    """Render the group; nothing where there is none."""
    if group is None:
        return
    text = (
        f"multicast group {group['address']}, port {group['port']}, {show_rate(group['rate'])} of"
        f" each site; members: {group['members_said']}; replayers, by rank:"
        f" {', '.join(group['replayers'])}"
    )
    if group["others"]:
        text += "; the others get all by links"
    yield escape(text)
    if not group["copies"]:
        yield "no exchange goes over the group: links bring all"
        return
    heads = (
        ">own: with the group",
        ">by links",
        ">complete graph",
        ">passed on: with",
        ">by links",
    )
    table = table_of("copies on a site's line, for each byte", "site", *heads)
    yield fill(table, group["copies"], _copy_row, most)


def _copy_row(row: JsonObject) -> list[str]:
    names: Sequence[str] = ("own_with_group", "own_by_links", "own_complete")
    passed: Sequence[str] = ("passed_with_group", "passed_by_links")
    return [row["label"], *(f"{row[name]:,}" for name in (*names, *passed))]
