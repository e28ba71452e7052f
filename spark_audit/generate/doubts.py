"""What leaves a day unproven: messages on their way, and ledgers that lack something."""

from __future__ import annotations

from relay.ledger.rows import Event, LedgerRow, Stage
from spark_audit.generate.planting import Plant, Planting, packed_in_pieces
from spark_audit.generate.world import MadeRow

_DAY_MS = 86_400_000


def pending(planting: Planting) -> None:
    """The last batches of an origin, which a site's log has and its deliverer has not come to."""
    _, site = _held_back(planting)
    planting.planted.not_proven += ["still on their way", f"wait for deliverer of {site}"]


def pending_at_link(planting: Planting) -> None:
    """The last batches of an origin, which its link has not brought to a site."""
    origin, site = _held_back(planting, at_link=True)
    planting.planted.not_proven += ["still on their way", f"wait for link {origin}-{site}"]


def pending_after_clock_set_back(planting: Planting) -> None:
    """The same, and the clock of their origin was set back by a day when its packer began anew."""
    origin, site = _held_back(planting)
    rows = planting.world.stage(origin, Stage.PACKED)
    packed = [made for made in rows if made.row.event is Event.BATCH]
    for made in packed:
        if made.row.incarnation == packed[-1].row.incarnation:
            made.change(recorded_ms=made.row.recorded_ms - _DAY_MS)
    planting.planted.not_proven += ["still on their way", f"wait for deliverer of {site}"]


def pending_in_pieces(planting: Planting) -> None:
    """A big message of which the packer has not packed all."""
    world = planting.world
    origin = planting.chance.choice(sorted(world.mesh.sites))
    last = packed_in_pieces(planting, origin, planting.chance.randbytes(16), 4, 2, last=True).row
    for rows in world.rows.values():
        for made in rows:
            if made.row.event is Event.THROUGH and made.row.origin == last.origin:
                made.change(incarnation_sequence=last.incarnation_sequence)
    planting.planted.explained["pending"] += len(world.mesh.sites) - 1
    planting.planted.not_proven.append(f"wait for packer of {origin}")


def packer_stands(planting: Planting) -> None:
    """A packer that went down before the day's end with its last batch in the log, whose row is
    written by the one after it: that batch is delivered, and no row tells that it was packed.
    """
    world = planting.world
    last = max(planting.free, key=lambda batch: batch.packed.row.recorded_ms)
    origin = planting.origin(last)
    for made in world.stage(origin, Stage.PACKED):
        if made.row.event is Event.THROUGH:
            made.change(through_ms=last.packed.row.first_published_ms)
    world.stage(origin, Stage.PACKED).remove(last.packed)
    planting.planted.not_proven.append(f"{origin} packed: that all it had packed has its row")


def gap(planting: Planting) -> None:
    """The last batches of an origin, which a site's log dropped before they were delivered: its
    flow stands, and a person has to say that it goes on.
    """
    origin, site = _held_back(planting)
    rows = planting.world.stage(site, Stage.DELIVERED)
    planting.world.stage(site, Stage.DELIVERED).append(
        MadeRow(
            LedgerRow(
                Stage.DELIVERED,
                rows[-1].row.recorded_ms,
                event=Event.GAP,
                origin=planting.world.cluster(origin),
                exchange=planting.world.batches[0].packed.row.exchange,
                reason="the log begins behind it",
            )
        )
    )
    planting.planted.not_proven.append(f"wait for deliverer of {site}, whose log has a gap")


def _held_back(planting: Planting, *, at_link: bool = False) -> tuple[str, str]:
    """(origin, site) of which the site has not delivered the last batches."""
    world = planting.world
    last = max(planting.free, key=lambda batch: batch.packed.row.recorded_ms)
    origin, site = planting.origin(last), planting.destination(last)
    cluster = last.packed.row.origin
    mine = [one for one in world.batches if one.packed.row.origin == cluster]
    behind = mine[mine.index(last) :]
    for batch in behind:
        planting.take(batch)
        planting.take_out(site, batch.delivered[site])
        planting.planted.explained["pending"] += batch.packed.row.count
    if at_link:
        names = {(one.packed.row.incarnation, one.packed.row.sequence) for one in behind}
        for at, stage, other in (
            (origin, Stage.LINKED_OUT, site),
            (site, Stage.LINKED_IN, origin),
        ):
            rows = world.stage(at, stage)
            rows[:] = [
                made
                for made in rows
                if made.row.neighbour != other
                or made.row.origin != cluster
                or (made.row.incarnation, made.row.sequence) not in names
            ]
    for made in world.stage(site, Stage.DELIVERED):
        if made.row.event is Event.THROUGH and made.row.origin == cluster:
            made.change(incarnation_sequence=last.packed.row.incarnation_sequence - 1)
    return origin, site


def _damage(kind: str) -> Plant:
    def plant(planting: Planting) -> None:
        site = planting.chance.choice(sorted(planting.world.mesh.sites))
        planting.planted.damage.append((kind, site))

    return plant


FILE_DAMAGE = ("ledger-ends", "file-missing", "truncated", "corrupt", "file-twice")

DOUBTS: dict[str, Plant] = {
    **{kind: _damage(kind) for kind in ("ledger-missing", *FILE_DAMAGE)},
    **{f"packed-{kind}": _damage(f"packed-{kind}") for kind in FILE_DAMAGE},
    **{f"linked_in-{kind}": _damage(f"linked_in-{kind}") for kind in FILE_DAMAGE},
    "pending": pending,
    "pending-at-link": pending_at_link,
    "pending-after-clock-set-back": pending_after_clock_set_back,
    "pending-in-pieces": pending_in_pieces,
    "packer-stands": packer_stands,
    "gap": gap,
}
"""Nothing is proven then. What is done to files is done to those of stage `delivered` unless the
kind names another.
"""
