"""Repairs to plant: of lost messages, repeated repairs, and repairs of delivered messages."""

from __future__ import annotations

from dataclasses import replace

from relay.ledger.rows import REPAIRED, Outcome, Stage
from spark_audit.generate.planting import Planting, cut, without
from spark_audit.generate.world import MadeRow

_REPAIR_KIND = 5


def repaired(planting: Planting) -> None:
    """Plant a loss that a repair mends, from any site including the one that lacked the message; a
    second repair is suppressed.
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
    """Plant a loss whose repair a barrier refused: still lost."""
    batch, entry, site = planting.pick()
    one = cut(batch.delivered[site], entry, entry + 1)
    without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)
    _repair(planting, one, planting.origin(batch), site, Outcome.DUPLICATE)


def repaired_wrongly(planting: Planting) -> None:
    """Plant a repair that a barrier accepted although the message was there."""
    batch, entry, site = planting.pick()
    one = cut(batch.delivered[site], entry, entry + 1)
    _repair(planting, one, planting.origin(batch), site, Outcome.DELIVERED)
    planting.planted.explained["repaired"] += 1
    planting.found("leaked duplicate", batch, entry, site)


def repaired_altered(planting: Planting) -> None:
    """Plant a loss whose repair brought other content."""
    batch, entry, site = planting.pick()
    one = cut(batch.delivered[site], entry, entry + 1)
    without(planting, batch, entry, site)
    one.change(contents=planting.chance.randbytes(8))
    _repair(planting, one, planting.origin(batch), site, Outcome.DELIVERED)
    planting.planted.explained["repaired"] += 1
    planting.found("altered", batch, entry, site)


def _repair(planting: Planting, one: MadeRow, by: str, site: str, outcome: Outcome) -> None:
    """Send the row's message again from `by` to `site`, as a batch of its own."""
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
