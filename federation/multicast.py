"""Sites of a mesh's multicast group, and the exchanges that go over it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

from federation.mesh import NO_MULTICAST, Exchange, Mesh
from federation.wording import few

LEAST_SITES = 3
"""Sites of a group for which one transmission is worth while."""


def group_sites(mesh: Mesh) -> frozenset[str]:
    """Return the sites that are members of the group; none where there is no group."""
    if mesh.group is None:
        return frozenset()
    return frozenset(name for name, site in mesh.sites.items() if site.multicast != NO_MULTICAST)


def group_exchanges(mesh: Mesh) -> frozenset[str]:
    """Return the names of the exchanges whose batches the group brings.

    They are chosen as a whole: a flow that came partly by the group and partly by links would come
    by two ways, neither of which is a copy of it. So an exchange goes by links that some site
    narrows, or that may not cross one, or that is for too few of the group's sites.

    All that go are of one lane, that of most of them. A link brings each lane in its own time: a
    log that has a batch of one need not have what the origin logged before it of another, and could
    not say from where on it can follow the group.
    """
    may_go = [exchange for exchange in mesh.exchanges.values() if not _why_unfit(mesh, exchange)]
    lanes = Counter(exchange.lane for exchange in may_go).most_common(1)
    return frozenset(exchange.name for exchange in may_go if exchange.lane == lanes[0][0])


def why_by_links(mesh: Mesh, exchange: Exchange) -> str:
    """Return why links bring an exchange's batches, and not the group; empty if the group does."""
    if why := _why_unfit(mesh, exchange):
        return why
    is_left_out = exchange.name not in group_exchanges(mesh)
    return "most others that could go are of another lane" if is_left_out else ""


def _why_unfit(mesh: Mesh, exchange: Exchange) -> str:
    """Return why an exchange cannot go over the group, whatever others do; or nothing."""
    narrowing = [name for name, site in mesh.sites.items() if exchange.name in site.wants]
    if narrowing:
        return f"{few(narrowing)} {'narrow' if len(narrowing) > 1 else 'narrows'} it by `wants`"
    if exchange.never_via:
        return "it has `never_via`"
    reached = [site for site in group_sites(mesh) if exchange.reaches(site)]
    if len(reached) < LEAST_SITES:
        return f"it is for fewer than {LEAST_SITES} sites of the group"
    return ""


def group_agreement(mesh: Mesh) -> bytes:
    """Return the digest (32 bytes) of what the sites of a group must have alike: the mesh, members,
    replayers, and the exchanges with those that their batches are for.

    Sites that differ in these would disagree which batches of a flow the group brings, and append
    one before another that a link has yet to bring. They do not hear each other instead.
    """
    if mesh.group is None:
        raise ValueError(f"mesh {mesh.name} has no group")
    exchanges = {
        name: sorted(
            site.cluster_id
            for site_name, site in mesh.sites.items()
            if mesh.exchanges[name].reaches(site_name)
        )
        for name in group_exchanges(mesh)
    }
    alike = {
        "mesh": mesh.name,
        "members": sorted(mesh.sites[name].cluster_id for name in group_sites(mesh)),
        "replayers": [mesh.sites[name].cluster_id for name in mesh.group.replayers],
        "exchanges": exchanges,
    }
    return hashlib.sha256(json.dumps(alike, sort_keys=True).encode()).digest()
