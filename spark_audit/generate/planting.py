"""Tools for planting faults: the world, the record of planted faults, and operations on rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from relay.ledger.rows import CONFLICT, Event, LedgerRow, Outcome, Stage
from spark_audit.generate.world import FRAGMENT_KIND, MadeBatch, MadeRow, MadeWorld


@dataclass(frozen=True, slots=True, order=True)
class PlantedFinding:
    """Finding that the audit must make: hexadecimal identity (empty for a loop), site names."""

    kind: str
    identity: str
    origin: str
    destination: str


@dataclass(slots=True)
class Planted:
    findings: list[PlantedFinding] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    """Verdicts that are no findings -> number of messages."""
    not_proven: list[str] = field(default_factory=list)
    """Words that the reasons must contain: a site, a file."""
    damage: list[tuple[str, str]] = field(default_factory=list)
    """(kind, site) of damage to do to the written files."""

    def write(self, file: Path) -> None:
        content = {
            "findings": [asdict(one) for one in sorted(self.findings)],
            "explained": dict(self.explained),
            "not_proven": self.not_proven,
        }
        file.write_text(json.dumps(content, indent=1) + "\n")


class TooFewMessages(ValueError):
    """No batches are left for another fault."""

    def __init__(self) -> None:
        super().__init__("too few messages for so many faults: make more")


@dataclass(slots=True)
class Planting:
    """World with the faults planted so far."""

    world: MadeWorld
    chance: random.Random
    planted: Planted
    free: list[MadeBatch]
    """Intact batches of at least three messages."""
    touched: list[MadeBatch] = field(default_factory=list)
    suppressed_at: set[str] = field(default_factory=set)
    """Sites at which a lost state would leave a loss open: their barrier suppressed a message, or
    they have had several states."""
    off_ms: dict[str, int] = field(default_factory=dict)
    """Site -> time by which its clock is ahead."""

    def when(self, batch: MadeBatch) -> int:
        """Return the time of packing by a true clock."""
        return batch.packed.row.recorded_ms - self.off_ms.get(self.origin(batch), 0)

    def last_batch(self) -> MadeBatch:
        """Take an untouched batch that is the last of some origin."""
        last = {batch.packed.row.origin: batch for batch in self.world.batches}
        batch = self.chance.choice([one for one in last.values() if one not in self.touched])
        self.take(batch)
        return batch

    def take(self, batch: MadeBatch) -> None:
        """Reserve the batch: no other fault uses it."""
        self.touched.append(batch)
        if batch in self.free:
            self.free.remove(batch)

    def batch(self) -> MadeBatch:
        if not self.free:
            raise TooFewMessages
        batch = self.free[self.chance.randrange(len(self.free))]
        self.take(batch)
        return batch

    def destination(self, batch: MadeBatch) -> str:
        return self.chance.choice(sorted(batch.delivered))

    def origin(self, batch: MadeBatch) -> str:
        names = {self.world.cluster(site): site for site in self.world.mesh.sites}
        return names[batch.packed.row.origin]

    def found(self, kind: str, batch: MadeBatch, entry: int | bytes, site: str) -> None:
        identity = entry if isinstance(entry, bytes) else batch.identity(entry)
        self.planted.findings.append(PlantedFinding(kind, identity.hex(), self.origin(batch), site))

    def found_all(self, kind: str, batch: MadeBatch, site: str) -> None:
        for entry in range(batch.packed.row.count):
            self.found(kind, batch, entry, site)

    def pick(self) -> tuple[MadeBatch, int, str]:
        batch = self.batch()
        return batch, self.chance.randrange(batch.packed.row.count), self.destination(batch)

    def add(self, site: str, row: MadeRow, after: MadeRow) -> None:
        """Insert a row of the site's deliverer behind `after`."""
        rows = self.world.stage(site, Stage.DELIVERED)
        rows.insert(rows.index(after) + 1, row)

    def take_out(self, site: str, row: MadeRow) -> None:
        self.world.stage(site, Stage.DELIVERED).remove(row)


Plant = Callable[[Planting], object]


def cut(made: MadeRow, begin: int, end: int) -> MadeRow:
    """Return a row of the messages from `begin` (inclusive) to `end`."""
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


def without(planting: Planting, batch: MadeBatch, entry: int, site: str) -> None:
    """Remove one message from the site's rows."""
    whole = batch.delivered[site]
    parts = [
        cut(whole, *part)
        for part in ((0, entry), (entry + 1, whole.row.count))
        if part[0] < part[1]
    ]
    for part in reversed(parts):
        planting.add(site, part, whole)
    planting.take_out(site, whole)


def repeat(planting: Planting, batch: MadeBatch, other: MadeBatch, entry: int) -> int:
    """Put the message into the other batch as well, everywhere; returns its entry there."""
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


def leak_at(
    planting: Planting, first: MadeBatch, entry: int, second: MadeBatch, place: int, leak: str
) -> None:
    """Have a message of the first batch, which stands in the second as well, delivered again at the
    site `leak`, and suppressed everywhere else.
    """
    for site, made in second.delivered.items():
        if site == leak:
            planting.found("leaked duplicate", first, entry, site)
        else:
            set_outcome(made, place, Outcome.DUPLICATE)
            planting.planted.explained["suppressed"] += 1


def in_conflict(planting: Planting) -> tuple[MadeBatch, int]:
    """Give a message the identity of an earlier one with other content; returns batch and entry."""
    first, second = two_of(planting, one_origin=True)
    place = repeat(planting, first, second, planting.chance.randrange(first.packed.row.count))
    content = planting.chance.randbytes(8)
    for made in (second.own, *second.delivered.values()):
        contents = bytearray(made.row.contents)
        contents[8 * place : 8 * place + 8] = content
        made.change(contents=bytes(contents))
    for made in second.delivered.values():
        set_outcome(made, place, Outcome.DELIVERED | CONFLICT)
    return second, place


def set_void(planting: Planting, site: str, whole: MadeRow) -> None:
    """Replace a deliverer's row: the site took the batch for void."""
    void = replace(whole.row, event=Event.VOID, count=0, identities=b"", contents=b"")
    row = MadeRow(replace(void, outcomes=b"", published=b"", delivered=b""))
    planting.add(site, row, whole)
    planting.take_out(site, whole)


def two_of(planting: Planting, *, one_origin: bool) -> tuple[MadeBatch, MadeBatch]:
    """Take two batches, the earlier first."""
    batch = planting.batch()
    others = [
        other
        for other in planting.free
        if (other.packed.row.origin == batch.packed.row.origin) is one_origin
        and other.packed.row.exchange == batch.packed.row.exchange
        and abs(planting.when(other) - planting.when(batch)) > 2000
    ]
    if not others:
        raise TooFewMessages
    other = planting.chance.choice(others)
    planting.take(other)
    first, second = sorted((batch, other), key=planting.when)
    return first, second


def packed_in_pieces(
    planting: Planting, origin: str, identity: bytes, pieces: int, packed: int, *, last: bool
) -> MadeRow:
    """Append the first `packed` pieces of a big message to an incarnation of the origin's packer:
    the last, or one with a successor. Returns the last piece's row.
    """
    rows = planting.world.stage(origin, Stage.PACKED)
    batches = [made for made in rows if made.row.kind and made.row.stage is Stage.PACKED]
    incarnation = batches[-1 if last else 0].row.incarnation
    before = [made for made in batches if made.row.incarnation == incarnation][-1]
    for piece in range(packed):
        row = before.row
        made = MadeRow(
            replace(
                row,
                recorded_ms=row.recorded_ms + 1,
                kind=FRAGMENT_KIND,
                sequence=row.sequence + 1,
                incarnation_sequence=row.incarnation_sequence + 1,
                fragment=piece,
                pieces=pieces,
                first_published_ms=row.last_published_ms,
                count=1,
                identities=identity,
                outcomes=row.outcomes[:1],
                published=bytes(4),
            )
        )
        rows.insert(rows.index(before) + 1, made)
        before = made
    return before


def is_of(row: LedgerRow, origin: str, incarnation: bytes) -> bool:
    """True if a row is of a batch of this incarnation, not an operator's. `origin` is a
    cluster ID.
    """
    return row.event is Event.BATCH and row.origin == origin and row.incarnation == incarnation
