"""Faults that look like something that would explain them: what an audit is not to believe."""

from __future__ import annotations

from dataclasses import replace

from federation.mesh import Begins
from relay.ledger.rows import CONFLICT, Outcome, Stage
from spark_audit.generate.planting import (
    Plant,
    Planting,
    cut,
    in_conflict,
    set_outcome,
    set_void,
    without,
)
from spark_audit.generate.world import FRAGMENT_KIND, MadeRow


def lost_in_conflict(planting: Planting) -> None:
    """Of two messages under one identity a site never had the second."""
    batch, entry = in_conflict(planting)
    site = planting.destination(batch)
    without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)


def suppressed_in_conflict(planting: Planting) -> None:
    """Of two messages under one identity a barrier took the second for a copy of the first."""
    batch, entry = in_conflict(planting)
    site = planting.destination(batch)
    set_outcome(batch.delivered[site], entry, Outcome.DUPLICATE)
    planting.suppressed_at.add(site)
    planting.found("lost", batch, entry, site)


def leaked_in_conflict(planting: Planting) -> None:
    """Of two messages under one identity a site delivered the second twice."""
    batch, entry = in_conflict(planting)
    site = planting.destination(batch)
    whole = batch.delivered[site]
    again = cut(whole, entry, entry + 1)
    set_outcome(again, 0, Outcome.DELIVERED | CONFLICT)
    planting.add(site, again, whole)
    planting.found("leaked duplicate", batch, entry, site)


def void_at_one_site(planting: Planting) -> None:
    """A good batch that one site took for void."""
    batch, _, site = planting.pick()
    set_void(planting, site, batch.delivered[site])
    for entry in range(batch.packed.row.count):
        planting.found("lost", batch, entry, site)


def own_elsewhere(planting: Planting) -> None:
    """A site that took a message of another one for its own, and did not deliver it."""
    batch, entry, site = planting.pick()
    set_outcome(batch.delivered[site], entry, Outcome.OWN)
    planting.found("lost", batch, entry, site)


def begun_then_lost(planting: Planting) -> None:
    """A packer died in the middle of a message of four pieces. Its successor packed it whole, and
    that is lost at a site. It is not the first of its batch.
    """
    batch, _, site = planting.pick()
    entry = batch.packed.row.count - 1
    rows = planting.world.stage(planting.origin(batch), Stage.PACKED)
    before = rows.index(batch.packed)
    dead = planting.chance.randbytes(8)
    at_ms = batch.packed.row.first_published_ms - 1000
    for piece in range(2):
        begun = replace(
            batch.packed.row,
            recorded_ms=at_ms + 1,
            kind=FRAGMENT_KIND,
            incarnation=dead,
            sequence=piece,
            incarnation_sequence=piece + 1,
            fragment=piece,
            pieces=4,
            first_published_ms=at_ms,
            last_published_ms=at_ms,
            count=1,
            identities=batch.identity(entry),
            outcomes=bytes([Outcome.SENT]),
            published=bytes(4),
        )
        rows.insert(before + piece, MadeRow(begun))
    without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)


def never_from_the_start(planting: Planting) -> None:
    """A batch of the time before a site joined, which begins at the start and did not deliver it,
    though a link brought it.
    """
    batch, _, site = planting.pick()
    world = planting.world
    mesh = world.mesh
    cluster = world.cluster(site)
    joined = replace(mesh.sites[site], begins=Begins.START)
    world.mesh = replace(mesh, sites={**mesh.sites, site: joined})
    earlier = replace(
        mesh,
        revision=f"{mesh.revision}-without-{site}",
        sites={name: one for name, one in mesh.sites.items() if name != site},
        links=tuple(link for link in mesh.links if site not in (link.sender, link.receiver)),
        cluster_ids={key: name for key, name in mesh.cluster_ids.items() if key != cluster},
    )
    world.earlier.append(earlier)
    for made in (batch.packed, batch.own, *batch.delivered.values()):
        made.change(revision=earlier.revision)
    planting.take_out(site, batch.delivered[site])
    for entry in range(batch.packed.row.count):
        planting.found("lost", batch, entry, site)


DECEPTIONS: dict[str, Plant] = {
    "lost-in-conflict": lost_in_conflict,
    "suppressed-in-conflict": suppressed_in_conflict,
    "leaked-in-conflict": leaked_in_conflict,
    "void-at-one-site": void_at_one_site,
    "own-elsewhere": own_elsewhere,
    "begun-then-lost": begun_then_lost,
    "never-from-the-start": never_from_the_start,
}
"""Each is a finding."""
