"""Faults to plant into a made world: one function a kind, each tells what the audit has to find.

A fault takes a batch that no other fault has touched. Kinds that are no findings are here as well:
what a mesh may do, and an audit must not hold against it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from relay.ledger.rows import (
    CONFLICT,
    REDELIVERED,
    Event,
    Outcome,
    Stage,
)
from spark_audit.made_world import MadeBatch, MadeRow, MadeWorld
from spark_audit.planted import Planted, PlantedFinding


@dataclass(slots=True)
class Planting:
    """One world, and what was planted so far."""

    world: MadeWorld
    chance: random.Random
    planted: Planted
    free: list[MadeBatch]
    """Batches of three messages and more that are whole so far."""
    suppressed_at: set[str] = field(default_factory=set)
    """Sites that lost something to their barrier: what a second state folder leaves open there."""

    def batch(self) -> MadeBatch:
        return self.free.pop(self.chance.randrange(len(self.free)))

    def destination(self, batch: MadeBatch) -> str:
        return self.chance.choice(sorted(batch.delivered))

    def origin(self, batch: MadeBatch) -> str:
        names = {self.world.cluster(site): site for site in self.world.mesh.sites}
        return names[batch.packed.row.origin]

    def found(self, kind: str, batch: MadeBatch, entry: int | bytes, site: str) -> None:
        identity = entry if isinstance(entry, bytes) else batch.identity(entry)
        self.planted.findings.append(PlantedFinding(kind, identity.hex(), self.origin(batch), site))

    def pick(self) -> tuple[MadeBatch, int, str]:
        batch = self.batch()
        return batch, self.chance.randrange(batch.packed.row.count), self.destination(batch)

    def add(self, site: str, row: MadeRow, after: MadeRow) -> None:
        """The site's deliverer wrote this row next."""
        rows = self.world.stage(site, Stage.DELIVERED)
        rows.insert(rows.index(after) + 1, row)

    def take_out(self, site: str, row: MadeRow) -> None:
        self.world.stage(site, Stage.DELIVERED).remove(row)


def cut(made: MadeRow, begin: int, end: int) -> MadeRow:
    """A row of only these messages of a row, half open."""
    row = made.row
    return MadeRow(
        replace(
            row,
            first_entry=row.first_entry + begin,
            count=end - begin,
            identities=row.identities[16 * begin : 16 * end],
            contents=row.contents[8 * begin : 8 * end],
            outcomes=row.outcomes[begin:end],
            published=row.published[4 * begin : 4 * end],
            delivered=row.delivered[4 * begin : 4 * end],
        )
    )


def set_outcome(made: MadeRow, entry: int, outcome: int) -> None:
    outcomes = bytearray(made.row.outcomes)
    outcomes[entry] = outcome
    made.change(outcomes=bytes(outcomes))


def _without(planting: Planting, batch: MadeBatch, entry: int, site: str) -> None:
    """The site's rows skip one message."""
    whole = batch.delivered[site]
    parts = [
        cut(whole, *part)
        for part in ((0, entry), (entry + 1, whole.row.count))
        if part[0] < part[1]
    ]
    for part in reversed(parts):
        planting.add(site, part, whole)
    planting.take_out(site, whole)


def lost(planting: Planting) -> None:
    """One message that a site never had."""
    batch, entry, site = planting.pick()
    _without(planting, batch, entry, site)
    planting.found("lost", batch, entry, site)


def lost_batch(planting: Planting) -> None:
    """A whole batch that a link left out."""
    batch, _, site = planting.pick()
    planting.take_out(site, batch.delivered[site])
    for entry in range(batch.packed.row.count):
        planting.found("lost", batch, entry, site)


def lost_as_duplicate(planting: Planting) -> None:
    """A barrier that suppressed what it had not seen."""
    batch, entry, site = planting.pick()
    set_outcome(batch.delivered[site], entry, Outcome.DUPLICATE)
    planting.suppressed_at.add(site)
    planting.found("lost", batch, entry, site)


def leaked_within_batch(planting: Planting) -> None:
    """A message delivered twice from one batch."""
    batch, entry, site = planting.pick()
    whole = batch.delivered[site]
    planting.add(site, cut(whole, entry, entry + 1), whole)
    planting.found("leaked duplicate", batch, entry, site)


def _repeat(planting: Planting, batch: MadeBatch, other: MadeBatch, entry: int) -> int:
    """The other batch has the same message as well, everywhere; where it stands there."""
    place = planting.chance.randrange(other.packed.row.count)
    own = batch.own.row
    content = own.contents[8 * entry : 8 * entry + 8]
    for made in (other.packed, other.own, *other.delivered.values()):
        row = made.row
        identities = bytearray(row.identities)
        identities[16 * place : 16 * place + 16] = batch.identity(entry)
        contents = bytearray(row.contents)
        if contents:
            contents[8 * place : 8 * place + 8] = content
        made.change(identities=bytes(identities), contents=bytes(contents))
    return place


def _two_of(planting: Planting, *, one_origin: bool) -> tuple[MadeBatch, MadeBatch]:
    """The earlier first."""
    batch = planting.batch()
    others = [
        other
        for other in planting.free
        if (other.packed.row.origin == batch.packed.row.origin) is one_origin
        and abs(other.packed.row.recorded_ms - batch.packed.row.recorded_ms) > 2000
    ]
    other = planting.chance.choice(others)
    planting.free.remove(other)
    first, second = sorted((batch, other), key=lambda one: one.packed.row.recorded_ms)
    return first, second


def leaked_across_batches(planting: Planting) -> None:
    """A message packed twice by its origin, and delivered twice at one site."""
    first, second = _two_of(planting, one_origin=True)
    entry = planting.chance.randrange(first.packed.row.count)
    place = _repeat(planting, first, second, entry)
    leak = planting.destination(second)
    for site, made in second.delivered.items():
        if site == leak:
            planting.found("leaked duplicate", first, entry, site)
        else:
            set_outcome(made, place, Outcome.DUPLICATE)
            planting.planted.explained["suppressed"] += 1


def leaked_across_origins(planting: Planting) -> None:
    """A message that was published at two sites, and delivered twice at a third."""
    first, second = _two_of(planting, one_origin=False)
    entry = planting.chance.randrange(first.packed.row.count)
    place = _repeat(planting, first, second, entry)
    origins = {planting.origin(first), planting.origin(second)}
    # Each origin has its own; what comes to it from the other is stopped.
    first_at = planting.origin(second)
    set_outcome(first.delivered[first_at], entry, Outcome.DUPLICATE)
    leak = planting.chance.choice(sorted(set(second.delivered) - origins))
    for site, made in second.delivered.items():
        if site == leak:
            planting.found("leaked duplicate", second, second.identity(place), site)
        else:
            set_outcome(made, place, Outcome.DUPLICATE)
    planting.planted.explained["suppressed"] += len(second.delivered)


def leaked_across_nodes(planting: Planting) -> None:
    """Two nodes of a site at once, with a folder each: both deliver a batch."""
    batch = planting.batch()
    site = planting.chance.choice(sorted(set(batch.delivered) - planting.suppressed_at))
    whole = batch.delivered[site]
    row = MadeRow(whole.row)
    planting.add(site, row, whole)
    planting.world.state_of[id(row)] = planting.chance.randbytes(16).hex()
    for entry in range(whole.row.count):
        planting.found("leaked duplicate", batch, entry, site)


def loss_and_duplicate(planting: Planting) -> None:
    """In one batch and minute: counts alone balance."""
    batch, entry, site = planting.pick()
    other = (entry + 1) % batch.packed.row.count
    row = batch.delivered[site].row
    identities = bytearray(row.identities)
    identities[16 * entry : 16 * entry + 16] = batch.identity(other)
    contents = bytearray(row.contents)
    contents[8 * entry : 8 * entry + 8] = row.contents[8 * other : 8 * other + 8]
    batch.delivered[site].change(identities=bytes(identities), contents=bytes(contents))
    planting.found("lost", batch, entry, site)
    planting.found("leaked duplicate", batch, other, site)


def forged(planting: Planting) -> None:
    """A delivery of what nobody packed."""
    batch, _, site = planting.pick()
    whole = batch.delivered[site]
    forgery = cut(whole, 0, 1)
    identity = planting.chance.randbytes(16)
    forgery.change(
        identities=identity,
        incarnation=planting.chance.randbytes(8),
        sequence=0,
    )
    planting.add(site, forgery, whole)
    planting.found("unexpected", batch, identity, site)


def back_at_origin(planting: Planting) -> None:
    """A site's own message, delivered to it."""
    batch, entry, _ = planting.pick()
    origin = planting.origin(batch)
    row = cut(batch.own, entry, entry + 1)
    set_outcome(row, 0, Outcome.DELIVERED)
    planting.add(origin, row, batch.own)
    planting.found("unexpected", batch, entry, origin)


def wrong_site(planting: Planting) -> None:
    """The right message at a site that it was not for."""
    batch = planting.batch()
    sites = sorted(batch.delivered)
    wrong = planting.chance.choice(sites)
    others = tuple(sorted(planting.world.cluster(site) for site in sites if site != wrong))
    for made in (batch.packed, batch.own, *batch.delivered.values()):
        made.change(destinations=others)
    for entry in range(batch.packed.row.count):
        planting.found("unexpected", batch, entry, wrong)


def altered(planting: Planting) -> None:
    """Other content under the same identity."""
    batch, entry, site = planting.pick()
    made = batch.delivered[site]
    contents = bytearray(made.row.contents)
    contents[8 * entry] ^= 1
    made.change(contents=bytes(contents))
    planting.found("altered", batch, entry, site)


def reordered(planting: Planting) -> None:
    """Two messages of a batch in the wrong order."""
    batch, entry, site = planting.pick()
    made = batch.delivered[site]
    first = min(entry, made.row.count - 2)
    columns = {}
    for name, size in (("identities", 16), ("contents", 8), ("published", 4)):
        whole = getattr(made.row, name)
        a, b, c = size * first, size * (first + 1), size * (first + 2)
        columns[name] = whole[:a] + whole[b:c] + whole[a:b] + whole[c:]
    made.change(**columns)
    planting.found("reordered", batch, first, site)


def reordered_batches(planting: Planting) -> None:
    """Two batches of a flow in the wrong order."""
    batch, _, site = planting.pick()
    rows = planting.world.stage(site, Stage.DELIVERED)
    made = batch.delivered[site]
    free = {id(one.delivered.get(site)) for one in planting.free}
    at = rows.index(made)
    flow = [
        index
        for index, other in enumerate(rows)
        if other.row.origin == made.row.origin and other.row.event is Event.BATCH
    ]
    place = flow.index(at)
    if place + 1 < len(flow) and id(rows[flow[place + 1]]) in free:
        early, late = at, flow[place + 1]
    else:
        planting.free.append(batch)
        reordered_batches(planting)
        return
    neighbour = next(one for one in planting.free if one.delivered.get(site) is rows[late])
    planting.free.remove(neighbour)
    rows[early], rows[late] = rows[late], rows[early]
    for entry in range(made.row.count):
        planting.found("reordered", batch, entry, site)


def looped(planting: Planting) -> None:
    """A batch that had been at a site before."""
    batch, _, site = planting.pick()
    made = batch.delivered[site]
    made.change(path=(*made.row.path[:-1], made.row.origin, made.row.path[-1]))
    planting.planted.findings.append(PlantedFinding("looped", "", planting.origin(batch), site))


def pending(planting: Planting) -> None:
    """The last batches of an origin, which a site is not done with yet."""
    world = planting.world
    last = max(planting.free, key=lambda batch: batch.packed.row.recorded_ms)
    planting.free.remove(last)
    site = planting.destination(last)
    mine = [b for b in world.batches if b.packed.row.origin == last.packed.row.origin]
    behind = [b for b in mine if b.packed.row.recorded_ms >= last.packed.row.recorded_ms]
    for batch in behind:
        if batch in planting.free:
            planting.free.remove(batch)
        planting.take_out(site, batch.delivered[site])
        planting.planted.explained["pending"] += batch.packed.row.count
    for made in world.stage(site, Stage.DELIVERED):
        if made.row.event is Event.THROUGH and made.row.origin == last.packed.row.origin:
            made.change(incarnation_sequence=last.packed.row.incarnation_sequence - 1)
    planting.planted.not_proven.append("still on their way")


def _explained(outcome: int, verdict: str) -> Callable[[Planting], None]:
    def plant(planting: Planting) -> None:
        batch, entry, site = planting.pick()
        set_outcome(batch.delivered[site], entry, outcome)
        planting.planted.explained[verdict] += 1

    return plant


def redelivered(planting: Planting) -> None:
    """Sent, not heard of, sent again with a flag; the row has it once more."""
    batch, entry, site = planting.pick()
    whole = batch.delivered[site]
    again = cut(whole, entry, entry + 1)
    set_outcome(again, 0, Outcome.DELIVERED | REDELIVERED)
    planting.add(site, again, whole)
    planting.planted.explained["redelivered"] += 1


def conflict(planting: Planting) -> None:
    """An identity that a publisher used for two contents: both are delivered."""
    first, second = _two_of(planting, one_origin=True)
    entry = planting.chance.randrange(first.packed.row.count)
    place = _repeat(planting, first, second, entry)
    content = planting.chance.randbytes(8)
    for made in (second.own, *second.delivered.values()):
        contents = bytearray(made.row.contents)
        contents[8 * place : 8 * place + 8] = content
        made.change(contents=bytes(contents))
    for made in second.delivered.values():
        set_outcome(made, place, Outcome.DELIVERED | CONFLICT)


def void(planting: Planting) -> None:
    """A batch of a packer whose time was over: nobody delivers it."""
    batch = planting.batch()
    for site, whole in batch.delivered.items():
        row = MadeRow(
            replace(
                whole.row,
                event=Event.VOID,
                count=0,
                identities=b"",
                contents=b"",
                outcomes=b"",
                published=b"",
                delivered=b"",
            )
        )
        planting.add(site, row, whole)
        planting.take_out(site, whole)
        planting.planted.explained["void"] += batch.packed.row.count


def packed_twice(planting: Planting) -> None:
    """A message in two batches, of which one is void: expected once."""
    first, second = _two_of(planting, one_origin=True)
    entry = planting.chance.randrange(first.packed.row.count)
    place = _repeat(planting, first, second, entry)
    for made in second.delivered.values():
        set_outcome(made, place, Outcome.DUPLICATE)
        planting.planted.explained["suppressed"] += 1


def parts(planting: Planting) -> None:
    """A batch that a site settled in three commits."""
    batch, _, site = planting.pick()
    whole = batch.delivered[site]
    count = whole.row.count
    for begin, end in ((count - 1, count), (1, count - 1), (0, 1)):
        if begin < end:
            planting.add(site, cut(whole, begin, end), whole)
    planting.take_out(site, whole)


def skew(planting: Planting) -> None:
    """Clocks that are off by ten minutes, one site's before, one's behind."""
    world = planting.world
    sites = sorted(world.mesh.sites)
    for site, off_ms in ((sites[0], 600_000), (sites[-1], -600_000)):
        for stage in (Stage.LINKED_IN, Stage.DELIVERED):
            for made in world.stage(site, stage):
                made.change(recorded_ms=made.row.recorded_ms + off_ms)


def _damage(kind: str) -> Callable[[Planting], None]:
    def plant(planting: Planting) -> None:
        site = planting.chance.choice(sorted(planting.world.mesh.sites))
        planting.planted.damage.append((kind, site))

    return plant


FAULTS: dict[str, Callable[[Planting], None]] = {
    "lost": lost,
    "lost-batch": lost_batch,
    "lost-as-duplicate": lost_as_duplicate,
    "leaked-within-batch": leaked_within_batch,
    "leaked-across-batches": leaked_across_batches,
    "leaked-across-origins": leaked_across_origins,
    "leaked-across-nodes": leaked_across_nodes,
    "loss-and-duplicate": loss_and_duplicate,
    "forged": forged,
    "back-at-origin": back_at_origin,
    "wrong-site": wrong_site,
    "altered": altered,
    "reordered": reordered,
    "reordered-batches": reordered_batches,
    "looped": looped,
}
"""Each is a finding."""

HARMLESS: dict[str, Callable[[Planting], None]] = {
    "unrouted": _explained(Outcome.UNROUTED, "unrouted"),
    "expired": _explained(Outcome.EXPIRED, "expired"),
    "dead": _explained(Outcome.DEAD, "dead-lettered"),
    "quarantined": _explained(Outcome.QUARANTINED, "quarantined"),
    "flagged": _explained(Outcome.DELIVERED | REDELIVERED, "redelivered"),
    "redelivered": redelivered,
    "conflict": conflict,
    "void": void,
    "packed-twice": packed_twice,
    "parts": parts,
    "skew": skew,
}
"""None is."""

DAMAGE: dict[str, Callable[[Planting], None]] = {
    kind: _damage(kind)
    for kind in ("ledger-missing", "file-missing", "truncated", "corrupt", "file-twice")
} | {"pending": pending}
"""Nothing is proven then."""
