"""Sites that are cut into other numbers of slots within the time: their states end in order, and
new ones begin.

The site stands still while that happens: a gap among its rows. What travels over the change is
planted here as well: messages lost and repeated on either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from federation.slots import SlotMap
from relay.ledger.rows import Event, LedgerRow, Stage, ended_rows
from spark_audit.generate.planting import Planting, TooFewMessages, leak_at, repeat, without
from spark_audit.generate.world import Era, MadeBatch, MadeRow, MadeWorld

EXCHANGES = ("orders", "prices")
"""Exchanges of a world with such a site: the first moves between slots, the second stays."""
ENTRIES = 48
"""Most messages of a batch there, so that each flow has batches on either side of a change."""
SLOT_MAPS = (SlotMap(), SlotMap(4, {"orders": 2, "prices": 0}), SlotMap())
_STILL_MS = 20_000
"""Least time without rows in which a site may be cut otherwise."""


def reslotted(planting: Planting) -> str:
    """Cut a site into four slots at a third of the time, and into one again at two thirds; returns
    the site, the same one if called again. A message from before each change is packed once more
    behind it and suppressed: the new states remember what the former ones delivered.
    """
    world = planting.world
    if world.eras:
        return next(iter(world.eras))
    origins = {planting.origin(batch) for batch in world.batches}
    site = planting.chance.choice(sorted(origins))
    span = world.to_ms - world.from_ms
    begins = [0, *(_still_at(world, site, world.from_ms + span * n // 3) for n in (1, 2))]
    world.eras[site] = [
        Era(ms, slots, tuple(planting.chance.randbytes(16).hex() for _ in range(slots.count)))
        for ms, slots in zip(begins, SLOT_MAPS, strict=True)
    ]
    _rename_incarnations(planting, site)
    _write_through(planting, site)
    mesh = world.mesh
    cut = replace(
        mesh,
        revision=f"{mesh.revision}-{SLOT_MAPS[1].count}-slots",
        sites={**mesh.sites, site: replace(mesh.sites[site], slots=SLOT_MAPS[1])},
    )
    world.earlier.append(cut)
    off_ms = planting.off_ms.get(site, 0)
    for batch in world.batches:
        if world.era(site, planting.when(batch) + off_ms) == 1:
            for made in (batch.packed, batch.own, *batch.delivered.values()):
                made.change(revision=cut.revision)
    # A state lost besides would leave open what is missing in the states after it.
    planting.suppressed_at.add(site)
    for before in (0, 1):
        first, second = _over(planting, site, before, from_site=False)
        _repeated(planting, first, second, leak="")
    return site


def lost_around(planting: Planting) -> None:
    """Plant losses in each state of a site that is cut otherwise: of messages for the site, and of
    its own.
    """
    site = reslotted(planting)
    for era in range(len(SLOT_MAPS)):
        for from_site in (False, True):
            batch = _pick(planting, _of_era(planting, site, era, from_site=from_site))
            there = planting.destination(batch) if from_site else site
            entry = planting.chance.randrange(batch.packed.row.count)
            without(planting, batch, entry, there)
            planting.found("lost", batch, entry, there)


def leaked_around(planting: Planting) -> None:
    """Plant messages that are packed again after their site, or their destination, was cut
    otherwise, and delivered twice: rows of two states.
    """
    site = reslotted(planting)
    for before in (0, 1):
        for from_site in (False, True):
            first, second = _over(planting, site, before, from_site=from_site)
            leak = planting.destination(second) if from_site else site
            _repeated(planting, first, second, leak=leak)


def _still_at(world: MadeWorld, site: str, about_ms: int) -> int:
    """Return the time nearest to `about_ms` at which nothing is under way at the site."""
    times = sorted(
        made.row.recorded_ms
        for (at, _), rows in world.rows.items()
        if at == site
        for made in rows
        if made.row.event is Event.BATCH
    )
    gaps = [(begin + end) // 2 for begin, end in pairwise(times) if end - begin >= _STILL_MS]
    if not gaps:
        raise TooFewMessages
    return min(gaps, key=lambda ms: abs(ms - about_ms))


def _rename_incarnations(planting: Planting, site: str) -> None:
    """Give the site's batches incarnations of the packers that each new state has."""
    world, cluster = planting.world, planting.world.cluster(site)
    incarnations: dict[tuple[bytes, int, int], bytes] = {}
    counts: dict[bytes, int] = {}
    sequences: dict[tuple[bytes, str], int] = {}
    renamed: dict[tuple[bytes, int], tuple[bytes, int, int]] = {}
    for batch in world.batches:
        row = batch.packed.row
        if row.origin != cluster:
            continue
        era = world.era(site, row.recorded_ms)
        slot = world.eras[site][era].slots.of(row.exchange)
        new = row.incarnation if era == 0 else planting.chance.randbytes(8)
        new = incarnations.setdefault((row.incarnation, era, slot), new)
        counts[new] = counts.get(new, 0) + 1  # its mark is 0
        sequence = sequences.get((new, row.exchange), 0)
        sequences[new, row.exchange] = sequence + 1
        renamed[row.incarnation, row.incarnation_sequence] = new, sequence, counts[new]
    for rows in world.rows.values():
        for made in rows:
            row = made.row
            name = renamed.get((row.incarnation, row.incarnation_sequence))
            if row.origin == cluster and name is not None:
                made.change(incarnation=name[0], incarnation_sequence=name[2])
                if row.kind:
                    made.change(sequence=name[1])


def _write_through(planting: Planting, site: str) -> None:
    """Replace the rows by which the site's packer has rows of everything: one packer a state."""
    world, cluster = planting.world, planting.world.cluster(site)
    rows = world.stage(site, Stage.PACKED)
    times = [made.row.recorded_ms for made in rows if made.row.event is Event.THROUGH]
    rows[:] = [made for made in rows if made.row.event is not Event.THROUGH]
    eras = world.eras[site]
    times += [era.from_ms - _STILL_MS // 4 for era in eras[1:]]
    packed = [made.row for made in rows if made.row.event is Event.BATCH]
    for number, era in enumerate(eras):
        for slot, state in enumerate(era.states):
            mine = [
                row
                for row in packed
                if world.era(site, row.recorded_ms) == number and era.slots.of(row.exchange) == slot
            ]
            incarnation, sequence = planting.chance.randbytes(8), 0
            for at_ms in sorted(times):
                if world.era(site, at_ms) != number:
                    continue
                before = [row for row in mine if row.recorded_ms <= at_ms]
                if before:
                    incarnation = before[-1].incarnation
                    sequence = before[-1].incarnation_sequence
                waiting = [row.first_published_ms for row in mine[len(before) :]]
                through = LedgerRow(
                    Stage.PACKED,
                    at_ms,
                    event=Event.THROUGH,
                    origin=cluster,
                    incarnation=incarnation,
                    incarnation_sequence=sequence,
                    through_ms=min([at_ms, *waiting]),
                )
                made = MadeRow(through)
                world.state_of[id(made)] = state
                rows.append(made)
    rows.sort(key=lambda made: made.row.recorded_ms)


def _of_era(planting: Planting, site: str, era: int, *, from_site: bool) -> Iterator[MadeBatch]:
    """Yield the intact batches that the site packed in an era, or delivered in it."""
    for batch in planting.free:
        if from_site:
            made = batch.packed if planting.origin(batch) == site else None
        else:
            made = batch.delivered.get(site)
        if made is not None and planting.world.era(site, made.row.recorded_ms) == era:
            yield batch


def _pick(planting: Planting, batches: Iterable[MadeBatch]) -> MadeBatch:
    found = list(batches)
    if not found:
        raise TooFewMessages
    batch = planting.chance.choice(found)
    planting.take(batch)
    return batch


def _over(
    planting: Planting, site: str, before: int, *, from_site: bool
) -> tuple[MadeBatch, MadeBatch]:
    """Take two batches of a flow on either side of a change: in the era `before`, and in the
    next.
    """
    later = list(_of_era(planting, site, before + 1, from_site=from_site))
    flows = {(one.packed.row.origin, one.packed.row.exchange) for one in later}
    first = _pick(
        planting,
        (
            one
            for one in _of_era(planting, site, before, from_site=from_site)
            if (one.packed.row.origin, one.packed.row.exchange) in flows
        ),
    )
    of = first.packed.row
    second = _pick(
        planting,
        (
            one
            for one in later
            if (one.packed.row.origin, one.packed.row.exchange) == (of.origin, of.exchange)
        ),
    )
    return first, second


def _repeated(planting: Planting, first: MadeBatch, second: MadeBatch, *, leak: str) -> None:
    """Pack a message of the first batch in the second as well, and suppress the copy everywhere but
    at the site `leak`.
    """
    entry = planting.chance.randrange(first.packed.row.count)
    leak_at(planting, first, entry, second, repeat(planting, first, second, entry), leak)


def rows_by_state(
    world: MadeWorld, site: str, stage: Stage
) -> Iterator[tuple[int, str, list[MadeRow]]]:
    """Yield slot, state and rows of each state of a site with eras: rows go to the slot of their
    exchange, idle rows to all slots, and each state but the last ones ends in order.
    """
    eras = world.eras[site]
    of_state: dict[tuple[int, str], list[MadeRow]] = {
        (slot, state): [] for era in eras for slot, state in enumerate(era.states)
    }
    slot_of = {state: slot for slot, state in of_state}
    for made in world.stage(site, stage):
        row, named = made.row, world.state_of.get(id(made))
        era = eras[world.era(site, row.recorded_ms)]
        if row.exchange:
            slot = era.slots.of(row.exchange)
            of_state.setdefault((slot, named or era.states[slot]), []).append(made)
        elif named:
            of_state[slot_of[named], named].append(made)
        else:
            for slot, state in enumerate(era.states):
                of_state[slot, state].append(made)
    for era, following in pairwise(eras):
        end_ms = following.from_ms - _STILL_MS // 8
        reason = f"{following.slots.count} slots instead of {era.slots.count}"
        for slot, state in enumerate(era.states):
            rows = of_state[slot, state]
            last_ms = max([end_ms, *(made.row.recorded_ms for made in rows[-1:])])
            ended = next(row for row in ended_rows(last_ms, reason) if row.stage is stage)
            rows.append(MadeRow(ended))
    for (slot, state), rows in of_state.items():
        yield slot, state, rows
