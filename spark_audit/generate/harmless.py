"""Events that a mesh may produce and an audit must accept: planted like faults, without
findings.
"""

from __future__ import annotations

from dataclasses import replace

from federation.mesh import IdentityScope
from relay.batches.time_offsets import pack_offsets
from relay.ledger.rows import REDELIVERED, Event, Outcome, Stage
from spark_audit.generate.planting import (
    Plant,
    Planting,
    cut,
    in_conflict,
    is_of,
    packed_in_pieces,
    repeat,
    set_outcome,
    set_void,
    two_of,
)
from spark_audit.generate.repairs import repaired
from spark_audit.generate.reslotting import reslotted
from spark_audit.generate.world import MadeBatch, MadeRow

SKEW_MS = 600_000


def _explained(outcome: int, verdict: str) -> Plant:
    def plant(planting: Planting) -> None:
        batch, entry, site = planting.pick()
        set_outcome(batch.delivered[site], entry, outcome)
        planting.planted.explained[verdict] += 1

    return plant


def redelivered(planting: Planting) -> None:
    """Plant a publish without a confirm, repeated with a flag in another row."""
    batch, entry, site = planting.pick()
    whole = batch.delivered[site]
    again = cut(whole, entry, entry + 1)
    set_outcome(again, 0, Outcome.DELIVERED | REDELIVERED)
    planting.add(site, again, whole)
    planting.planted.explained["redelivered"] += 1


def scoped_by_origin(planting: Planting) -> None:
    """Plant an identity that two sites used under `scope: origin`, both messages delivered. The
    present mesh file has `scope: mesh`.
    """
    first, second = two_of(planting, one_origin=False)
    repeat(planting, first, second, planting.chance.randrange(first.packed.row.count))
    mesh = planting.world.mesh
    exchange = mesh.exchanges[first.packed.row.exchange]
    by_origin = replace(exchange, scope=IdentityScope.ORIGIN)
    earlier = replace(
        mesh,
        revision=f"{mesh.revision}-by-origin",
        exchanges={**mesh.exchanges, exchange.name: by_origin},
    )
    planting.world.earlier.append(earlier)
    for batch in (first, second):
        for made in (batch.packed, batch.own, *batch.delivered.values()):
            made.change(revision=earlier.revision)


def void(planting: Planting) -> None:
    """Plant a batch of an expired packer, which nobody delivers."""
    batch = planting.batch()
    set_void(planting, planting.origin(batch), batch.own)
    for site, whole in batch.delivered.items():
        set_void(planting, site, whole)
        planting.planted.explained["void"] += batch.packed.row.count


def packed_twice(planting: Planting) -> None:
    """Plant a message in two batches, one of them void: expected once."""
    first, second = two_of(planting, one_origin=True)
    entry = planting.chance.randrange(first.packed.row.count)
    place = repeat(planting, first, second, entry)
    for made in second.delivered.values():
        set_outcome(made, place, Outcome.DUPLICATE)
        planting.planted.explained["suppressed"] += 1


def parts(planting: Planting) -> None:
    """Plant a batch that a site settled in three commits."""
    batch, _, site = planting.pick()
    whole = batch.delivered[site]
    count = whole.row.count
    for begin, end in ((count - 1, count), (1, count - 1), (0, 1)):
        if begin < end:
            planting.add(site, cut(whole, begin, end), whole)
    planting.take_out(site, whole)


def big(planting: Planting) -> None:
    """Plant a message in three pieces."""
    origin = _some_origin(planting)
    world, cluster = planting.world, planting.world.cluster(origin)
    last = packed_in_pieces(planting, origin, planting.chance.randbytes(16), 3, 3, last=False).row
    content = planting.chance.randbytes(8)
    for site in world.mesh.sites:
        own = site == origin
        rows = world.stage(site, Stage.DELIVERED)
        before = [made for made in rows if is_of(made.row, cluster, last.incarnation)][-1]
        settled = MadeRow(
            replace(
                last,
                stage=Stage.DELIVERED,
                recorded_ms=before.row.recorded_ms + 1,
                path=before.row.path,
                outcomes=bytes([Outcome.OWN if own else Outcome.DELIVERED]),
                contents=content,
                delivered=bytes(4),
            )
        )
        planting.add(site, settled, before)


def big_begun(planting: Planting) -> None:
    """Plant a packer's death within a message of four pieces, which its successor packs anew under
    another identity.
    """
    origin = _some_origin(planting)
    packed_in_pieces(planting, origin, planting.chance.randbytes(16), 4, 2, last=False)
    planting.planted.explained["void"] += len(planting.world.mesh.sites) - 1


def _some_origin(planting: Planting) -> str:
    origins = {planting.origin(batch) for batch in planting.world.batches}
    return planting.chance.choice(sorted(origins))


def skew(planting: Planting) -> None:
    """Set two sites' clocks off by ten minutes, one ahead, one behind."""
    world = planting.world
    sites = sorted(world.mesh.sites)
    for site, off_ms in ((sites[0], SKEW_MS), (sites[-1], -SKEW_MS)):
        planting.off_ms[site] = off_ms
        cluster = world.cluster(site)
        for (at, _), rows in world.rows.items():
            for made in rows:
                row = made.row
                if at == site:
                    made.change(recorded_ms=row.recorded_ms + off_ms)
                if row.kind and row.origin == cluster:
                    made.change(
                        first_published_ms=row.first_published_ms + off_ms,
                        last_published_ms=row.last_published_ms + off_ms,
                    )
    for batch in world.batches:
        row = batch.packed.row
        if row.first_published_ms < world.from_ms or row.last_published_ms >= world.to_ms:
            planting.take(batch)


def idle_site(planting: Planting) -> None:
    """Make a site at which nobody publishes, and whose packer still writes its rows."""
    world = planting.world
    site = planting.chance.choice(sorted(world.mesh.sites)[1:-1])
    cluster = world.cluster(site)
    for rows in world.rows.values():
        rows[:] = [
            made
            for made in rows
            if made.row.origin != cluster
            or (made.row.stage is Stage.PACKED and made.row.event is Event.THROUGH)
        ]
    world.batches[:] = [one for one in world.batches if one.packed.row.origin != cluster]
    planting.free[:] = [one for one in planting.free if one.packed.row.origin != cluster]


def day_edges(planting: Planting) -> None:
    """Plant batches across the begin and the end of the day. Each lacks a message on either side at
    a site; only the message within the day is a finding of the day's audit.
    """
    world = planting.world
    for origin in sorted({batch.packed.row.origin for batch in planting.free}):
        mine = [
            one
            for one in planting.free
            if one.packed.row.origin == origin and len(one.packed.row.published) > 4 * 4
        ]
        if len(mine) < 3:
            continue
        _straddle(planting, mine[0], world.from_ms, begins=True)
        _straddle(planting, mine[-2], world.to_ms, begins=False)


def _straddle(planting: Planting, batch: MadeBatch, edge_ms: int, *, begins: bool) -> None:
    planting.take(batch)
    row = batch.packed.row
    middle = row.count // 2
    off_ms = edge_ms - row.first_published_ms
    offsets = [-300] * middle + [300] * (row.count - middle)
    published = pack_offsets([edge_ms + one for one in offsets], edge_ms - 300)
    for made in (batch.packed, batch.own, *batch.delivered.values()):
        made.change(
            recorded_ms=made.row.recorded_ms + off_ms,
            first_published_ms=edge_ms - 300,
            last_published_ms=edge_ms + 300,
            published=published,
        )
    site = planting.destination(batch)
    within, outside = (middle, 0) if begins else (0, middle)
    whole = batch.delivered[site]
    first, second = sorted((within, outside))
    for part in ((second + 1, row.count), (first + 1, second), (0, first)):
        if part[0] < part[1]:
            planting.add(site, cut(whole, *part), whole)
    planting.take_out(site, whole)
    planting.found("lost", batch, within, site)


SHAPES: dict[str, Plant] = {
    "idle-site": idle_site,
    "skew": skew,
    "day-edges": day_edges,
    "reslot": reslotted,
}
"""Kinds that change the whole world, planted first."""

HARMLESS: dict[str, Plant] = {
    "unrouted": _explained(Outcome.UNROUTED, "unrouted"),
    "expired": _explained(Outcome.EXPIRED, "expired"),
    "dead": _explained(Outcome.DEAD, "dead-lettered"),
    "quarantined": _explained(Outcome.QUARANTINED, "quarantined"),
    "flagged": _explained(Outcome.DELIVERED | REDELIVERED, "redelivered"),
    "redelivered": redelivered,
    "repaired": repaired,
    "conflict": in_conflict,
    "scoped-by-origin": scoped_by_origin,
    "void": void,
    "packed-twice": packed_twice,
    "parts": parts,
    "big": big,
    "big-begun": big_begun,
}
"""Kinds that are no findings."""
