"""Repairs to plant: of what was lost, done twice, and of what was there."""

from __future__ import annotations

from dataclasses import replace

from relay.ledger.rows import REPAIRED, Outcome, Stage
from spark_audit.generate.planting import Planting, cut, without
from spark_audit.generate.world import MadeRow

_REPAIR_KIND = 5


def repaired(planting: Planting) -> None:
    """Lost, and sent again by a repair: by any site, the one that lacked it included; done a second
    time it is suppressed.
    """
    batch, entry, site = planting.pick()
    one = cut(batch.delivered[site], entry, entry + 1)
    without(planting, batch, entry, site)
    by = planting.chance.choice(sorted(planting.world.mesh.sites))
    _repair(planting, one, by, site, Outcome.DELIVERED)
    planting.planted.explained["repaired"] += 1
    _repair(planting, one, planting.origin(batch), site, Outcome.DUPLICATE)
    planting.planted.explained["suppressed"] += 1


def repair_refused(planting: Planting) -> None:
    """Lost, and a barrier refused the repair: it is lost still."""
    batch, entry, site = planting.pick()
    one = cut(batch.delivered[site], entry, entry + 1)
    without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)
    _repair(planting, one, planting.origin(batch), site, Outcome.DUPLICATE)


def repaired_wrongly(planting: Planting) -> None:
    """A repair that a barrier let through although the message was there."""
    batch, entry, site = planting.pick()
    one = cut(batch.delivered[site], entry, entry + 1)
    _repair(planting, one, planting.origin(batch), site, Outcome.DELIVERED)
    planting.planted.explained["repaired"] += 1
    planting.found("leaked duplicate", batch, entry, site)


def repaired_altered(planting: Planting) -> None:
    """Lost, and a repair brought it with other content."""
    batch, entry, site = planting.pick()
    one = cut(batch.delivered[site], entry, entry + 1)
    without(planting, batch, entry, site)
    one.change(contents=planting.chance.randbytes(8))
    _repair(planting, one, planting.origin(batch), site, Outcome.DELIVERED)
    planting.planted.explained["repaired"] += 1
    planting.found("altered", batch, entry, site)


def _repair(planting: Planting, one: MadeRow, by: str, site: str, outcome: Outcome) -> None:
    """The site `by` sends the message of this row again, as a batch of its own, to `site`."""
    world, row = planting.world, one.row
    first_ms = row.first_published_ms + int.from_bytes(row.published, "little", signed=True)
    packed = replace(
        row,
        stage=Stage.PACKED,
        recorded_ms=world.to_ms + 60_000,
        kind=_REPAIR_KIND,
        origin=world.cluster(by),
        incarnation=planting.chance.randbytes(8),
        sequence=0,
        incarnation_sequence=2,
        destinations=(world.cluster(site),),
        position=row.origin,
        path=(world.cluster(by),),
        first_published_ms=first_ms,
        last_published_ms=first_ms,
        first_entry=0,
        contents=b"",
        outcomes=bytes([Outcome.SENT]),
        published=bytes(4),
        delivered=b"",
    )
    path = packed.path if by == site else (*packed.path, world.cluster(site))
    delivered = replace(
        packed,
        stage=Stage.DELIVERED,
        recorded_ms=packed.recorded_ms + 100,
        path=path,
        contents=row.contents,
        outcomes=bytes([outcome | REPAIRED]),
        delivered=bytes(4),
    )
    world.stage(by, Stage.PACKED).append(MadeRow(packed))
    world.stage(site, Stage.DELIVERED).append(MadeRow(delivered))
