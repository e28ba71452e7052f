"""Invented day of a mesh: the rows of every stage of every site, made of a seed.

For tests of the audit and for sizing a cluster. All rows add up; faults are planted afterwards
(`faults`).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from federation.mesh import Mesh
from federation.slots import SlotMap
from relay.batches.time_offsets import pack_offsets
from relay.ledger.rows import Event, LedgerRow, Outcome, Stage

MINUTE_MS = 60_000
BATCH_KIND = 1
FRAGMENT_KIND = 2
_GOES_ON_MS = 20 * MINUTE_MS
"""Time by which rows go on past the end, whatever a site's clock is off."""


@dataclass(eq=False, slots=True)
class MadeRow:
    """Ledger row that can still be changed."""

    row: LedgerRow

    def change(self, **fields: Any) -> None:
        self.row = replace(self.row, **fields)


@dataclass(slots=True)
class MadeBatch:
    """Packed batch and its rows, into which faults are planted."""

    packed: MadeRow
    own: MadeRow
    delivered: dict[str, MadeRow] = field(default_factory=dict)
    """Site -> row of its deliverer."""

    def identity(self, entry: int) -> bytes:
        return self.packed.row.identities[16 * entry : 16 * entry + 16]


@dataclass(frozen=True, slots=True)
class Era:
    """Time in which a site is cut into the same slots, from `from_ms` on, by its own clock.
    `states`: IDs of the slots' state folders.
    """

    from_ms: int
    slots: SlotMap
    states: tuple[str, ...]


@dataclass(slots=True)
class MadeWorld:
    """Whole mesh's rows, by site and stage, in the order of writing."""

    mesh: Mesh
    from_ms: int
    to_ms: int
    rows: dict[tuple[str, Stage], list[MadeRow]] = field(default_factory=dict)
    batches: list[MadeBatch] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    """Site -> ID of its state folder."""
    state_of: dict[int, str] = field(default_factory=dict)
    """id() of a row -> ID of another state folder that wrote it."""
    earlier: list[Mesh] = field(default_factory=list)
    """Revisions before `mesh`."""
    eras: dict[str, list[Era]] = field(default_factory=dict)
    """Site -> eras of a site that is cut otherwise, in order; other sites have one state."""

    def era(self, site: str, ms: int) -> int:
        """Return the number of the site's era at a time by its clock."""
        eras = self.eras.get(site, ())
        return max(bisect_right(eras, ms, key=lambda era: era.from_ms) - 1, 0)

    def stage(self, site: str, stage: Stage) -> list[MadeRow]:
        return self.rows.setdefault((site, stage), [])

    def cluster(self, site: str) -> str:
        return self.mesh.sites[site].cluster_id


def make_world(
    mesh: Mesh,
    exchanges: Sequence[str],
    messages: int,
    seed: int,
    from_ms: int,
    to_ms: int,
    entries: int = 256,
) -> MadeWorld:
    """Make about `messages` messages, spread over sites and time, in batches of up to `entries`, of
    the exchanges in turn. Every site's packer has two incarnations in that time.
    """
    chance = random.Random(seed)
    world = MadeWorld(mesh, from_ms, to_ms)
    sites = list(mesh.sites)
    for site in sites:
        world.states[site] = chance.randbytes(16).hex()
    for origin in sites:
        _pack(world, chance, origin, exchanges, messages // len(sites), entries)
    for site in sites:
        _deliver(world, chance, site)
    _add_idle_rows(world)
    _add_position_rows(world)
    for site in sites:
        _add_through_rows(world, site)
    return world


def _pack(
    world: MadeWorld,
    chance: random.Random,
    origin: str,
    exchanges: Sequence[str],
    messages: int,
    entries: int,
) -> None:
    sizes = []
    while messages > 0:
        size = min(messages, chance.choice((entries, entries, chance.randint(1, entries))))
        sizes.append(size)
        messages -= size
    span = world.to_ms - world.from_ms
    times = sorted(world.from_ms + chance.randrange(span) for _ in sizes)
    restart = len(sizes) // 2
    cluster = world.cluster(origin)
    incarnation, begin = chance.randbytes(8), 0
    recorded_ms = 0
    for number, (size, at_ms) in enumerate(zip(sizes, times, strict=True)):
        if number == restart:
            incarnation, begin = chance.randbytes(8), number
        packed_before = number - begin
        offsets = sorted(chance.randrange(900) for _ in range(size))
        published = [at_ms + offset for offset in offsets]
        recorded_ms = max(recorded_ms, published[-1] + chance.randint(1, 5))
        identities = chance.randbytes(16 * size)
        row = LedgerRow(
            stage=Stage.PACKED,
            recorded_ms=recorded_ms,
            kind=BATCH_KIND,
            origin=cluster,
            incarnation=incarnation,
            exchange=exchanges[number % len(exchanges)],
            sequence=packed_before // len(exchanges),
            incarnation_sequence=packed_before + 1,  # its mark is 0
            revision=world.mesh.revision,
            path=(cluster,),
            first_published_ms=published[0],
            last_published_ms=published[-1],
            count=size,
            identities=identities,
            outcomes=bytes([Outcome.SENT]) * size,
            published=pack_offsets(published, published[0]),
        )
        packed = MadeRow(row)
        own = MadeRow(
            replace(
                row,
                stage=Stage.DELIVERED,
                recorded_ms=recorded_ms + 2,
                outcomes=bytes([Outcome.OWN]) * size,
                contents=chance.randbytes(8 * size),
                delivered=bytes(4 * size),
            )
        )
        world.stage(origin, Stage.PACKED).append(packed)
        world.stage(origin, Stage.DELIVERED).append(own)
        world.batches.append(MadeBatch(packed, own))


def _deliver(world: MadeWorld, chance: random.Random, site: str) -> None:
    """Deliver all batches over links from their origins: all sites are linked with each other."""
    reached: dict[str, int] = {}
    cluster = world.cluster(site)
    names = {world.cluster(one): one for one in world.mesh.sites}
    for batch in world.batches:
        row = batch.packed.row
        if row.origin == cluster:
            continue
        came_ms = max(reached.get(row.origin, 0), row.recorded_ms + chance.randint(20, 400))
        reached[row.origin] = came_ms
        path = (*row.path, cluster)
        origin = names[row.origin]
        link = replace(row, identities=b"", outcomes=b"", published=b"")
        world.stage(origin, Stage.LINKED_OUT).append(
            MadeRow(replace(link, stage=Stage.LINKED_OUT, recorded_ms=came_ms + 10, neighbour=site))
        )
        world.stage(site, Stage.LINKED_IN).append(
            MadeRow(
                replace(
                    link,
                    stage=Stage.LINKED_IN,
                    recorded_ms=came_ms,
                    path=path,
                    neighbour=origin,
                )
            )
        )
        batch.delivered[site] = delivered = MadeRow(
            replace(
                batch.own.row,
                recorded_ms=came_ms + 5,
                path=path,
                outcomes=bytes([Outcome.DELIVERED]) * row.count,
            )
        )
        world.stage(site, Stage.DELIVERED).append(delivered)
    for stage in (Stage.LINKED_IN, Stage.DELIVERED):
        world.stage(site, stage).sort(key=_recorded)


def _add_idle_rows(world: MadeWorld) -> None:
    """Add a row a minute of every stage, from before the time to past its end."""
    minutes = range(world.from_ms - 2 * MINUTE_MS, world.to_ms + _GOES_ON_MS, MINUTE_MS)
    for site in world.mesh.sites:
        for stage in Stage:
            rows = world.stage(site, stage)
            rows += [MadeRow(LedgerRow(stage, ms, event=Event.IDLE)) for ms in minutes]
            rows.sort(key=_recorded)


def _add_position_rows(world: MadeWorld) -> None:
    """Add each deliverer's last row of each flow: done with everything packed."""
    rows = [batch.packed.row for batch in world.batches]
    last = {(row.origin, row.exchange): row for row in rows}
    for site in world.mesh.sites:
        for row in last.values():
            through = LedgerRow(
                Stage.DELIVERED,
                world.to_ms + _GOES_ON_MS,
                event=Event.THROUGH,
                origin=row.origin,
                exchange=row.exchange,
                incarnation=row.incarnation,
                incarnation_sequence=row.incarnation_sequence,
            )
            world.stage(site, Stage.DELIVERED).append(MadeRow(through))


def _add_through_rows(world: MadeWorld, site: str) -> None:
    """Add rows, hourly and at the end, of the time up to which all packed messages have rows."""
    rows = world.stage(site, Stage.PACKED)
    end_ms = world.to_ms + _GOES_ON_MS
    waiting = [made.row for made in reversed(rows) if made.row.event is Event.BATCH]
    before = waiting.pop() if waiting else None
    for at_ms in sorted({*range(world.from_ms, end_ms, 60 * MINUTE_MS), end_ms}):
        while waiting and waiting[-1].recorded_ms <= at_ms:
            before = waiting.pop()
        first_ms = min((row.first_published_ms for row in waiting), default=end_ms)
        if before is not None and before.recorded_ms <= at_ms:
            through = LedgerRow(
                Stage.PACKED,
                at_ms,
                event=Event.THROUGH,
                origin=before.origin,
                incarnation=before.incarnation,
                incarnation_sequence=before.incarnation_sequence,
                through_ms=min(at_ms, first_ms),
            )
            rows.append(MadeRow(through))
    rows.sort(key=_recorded)


def _recorded(made: MadeRow) -> int:
    return made.row.recorded_ms
