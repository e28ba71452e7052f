"""Make a folder with a mesh file, ledgers with planted faults, and the list of planted faults.

Here as well: doubts, which leave a day unproven (messages on their way, incomplete ledgers).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

from relay.ledger.rows import Event, LedgerRow, Stage
from spark_audit.generate.faults import FAULTS
from spark_audit.generate.files import ROWS_OF_A_FILE, write_ledgers, write_mesh
from spark_audit.generate.harmless import HARMLESS, SHAPES
from spark_audit.generate.planting import Plant, Planted, Planting, packed_in_pieces
from spark_audit.generate.reslotting import ENTRIES, EXCHANGES
from spark_audit.generate.world import MadeRow, make_world
from spark_audit.period import Period

_DAY_MS = 86_400_000


def pending(planting: Planting) -> None:
    """Plant an origin's last batches in a site's log, not yet delivered."""
    _, site = _held_back(planting)
    planting.planted.not_proven += ["still on their way", f"wait for deliverer of {site}"]


def pending_at_link(planting: Planting) -> None:
    """Plant an origin's last batches that its link has not brought to a site."""
    origin, site = _held_back(planting, at_link=True)
    planting.planted.not_proven += ["still on their way", f"wait for link {origin}-{site}"]


def pending_after_clock_set_back(planting: Planting) -> None:
    """Plant undelivered last batches of an origin whose clock was set back by a day when its packer
    restarted.
    """
    origin, site = _held_back(planting)
    rows = planting.world.stage(origin, Stage.PACKED)
    packed = [made for made in rows if made.row.event is Event.BATCH]
    for made in packed:
        if made.row.incarnation == packed[-1].row.incarnation:
            made.change(recorded_ms=made.row.recorded_ms - _DAY_MS)
    planting.planted.not_proven += ["still on their way", f"wait for deliverer of {site}"]


def pending_in_pieces(planting: Planting) -> None:
    """Plant a big message whose pieces are not all packed."""
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
    """Plant a packer that stopped before the day's end with its last batch in the log. Its
    successor writes the row: the batch is delivered, and no row shows the packing.
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
    """Plant an origin's last batches that a site's log dropped before their delivery: the flow
    stands until a person accepts the gap.
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
    """Remove the deliveries of an origin's last batches at a site; returns (origin, site)."""
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


def _damaging(kind: str) -> Plant:
    def plant(planting: Planting) -> None:
        site = planting.chance.choice(sorted(planting.world.mesh.sites))
        planting.planted.damage.append((kind, site))

    return plant


FILE_DAMAGE = ("ledger-ends", "file-missing", "truncated", "corrupt", "file-twice")

DOUBTS: dict[str, Plant] = {
    **{kind: _damaging(kind) for kind in ("ledger-missing", *FILE_DAMAGE)},
    **{f"packed-{kind}": _damaging(f"packed-{kind}") for kind in FILE_DAMAGE},
    **{f"linked_in-{kind}": _damaging(f"linked_in-{kind}") for kind in FILE_DAMAGE},
    "pending": pending,
    "pending-at-link": pending_at_link,
    "pending-after-clock-set-back": pending_after_clock_set_back,
    "pending-in-pieces": pending_in_pieces,
    "packer-stands": packer_stands,
    "gap": gap,
}
"""Kinds that leave a day unproven. File damage is done to stage `delivered` unless the kind names
another."""


KINDS = {**SHAPES, **FAULTS, **HARMLESS, **DOUBTS}
_ENOUGH = 3
"""Least messages of a batch worth a fault."""


class BadFault(ValueError):
    """Unknown kind of fault."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no fault {kind!r}; there are: {', '.join(KINDS)}; all")
        self.kind = kind


def generate_ledgers(
    out: Path,
    sites: int,
    messages: int,
    seed: int,
    period: Period,
    faults: Iterable[str],
    at_rows: int = ROWS_OF_A_FILE,
) -> Planted:
    """Write OUT/mesh.yaml, OUT/sites/SITE/ledger and OUT/planted.json. `all` stands for every
    finding and every harmless kind, without doubts. Raises BadFault, FileExistsError.
    """
    everything = (*SHAPES, *FAULTS, *HARMLESS)
    kinds = [kind for one in faults for kind in (everything if one == "all" else (one,))]
    for kind in kinds:
        if kind not in KINDS:
            raise BadFault(kind)
    kinds.sort(key=list(KINDS).index)
    is_cut = any("reslot" in kind for kind in kinds)
    exchanges, entries = (EXCHANGES, ENTRIES) if is_cut else (EXCHANGES[:1], 256)
    _, mesh = write_mesh(out, sites, exchanges)
    world = make_world(mesh, exchanges, messages, seed, period.from_ms, period.to_ms, entries)
    free = [batch for batch in world.batches if batch.packed.row.count >= _ENOUGH]
    planting = Planting(world, random.Random(f"faults {seed}"), Planted(), free)
    for kind in kinds:
        KINDS[kind](planting)
    write_ledgers(world, out / "sites", at_rows)
    for kind, site in planting.planted.damage:
        _damage(out / "sites", site, kind, planting)
    planting.planted.write(out / "planted.json")
    return planting.planted


def _damage(sites: Path, site: str, kind: str, planting: Planting) -> None:
    named = planting.planted.not_proven
    if kind == "ledger-missing":
        shutil.rmtree(sites / site)
        named.append(site)
        return
    stage, what = kind.split("-", 1) if kind.startswith(("packed-", "linked")) else ("", kind)
    files = sorted((sites / site / "ledger").glob(f"date=*/{stage or 'delivered'}-*.parquet"))
    # Neither the first nor the last: the files before and behind show the hole.
    file = files[planting.chance.randrange(1, len(files) - 1)]
    named.append(site if what in ("file-missing", "ledger-ends") else file.name)
    if what == "file-missing":
        file.unlink()
    elif what == "ledger-ends":
        for later in files[files.index(file) :]:
            later.unlink()
    elif what == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    elif what == "corrupt":
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 200] = planting.chance.randbytes(200)
        file.write_bytes(bytes(content))
    elif what == "file-twice":
        twin = file.with_name(f"copy-of-{file.name}")
        shutil.copyfile(file, twin)
        named[-1] = twin.name
