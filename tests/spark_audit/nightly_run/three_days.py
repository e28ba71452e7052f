"""A mesh of three sites over three days, one of which waits for the others, a night at a time.

Of site1, site2 gets nothing from ten in the evening of the first day until nine in the next
morning, and one batch never. Of site3 it gets nothing from eight in that evening until five in the
morning of the third day.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from relay.ledger.rows import CONFLICT, Outcome, Stage
from spark_audit.generate.files import write_ledgers, write_mesh
from spark_audit.generate.planting import Planted, Planting, cut, repeat, set_outcome
from spark_audit.generate.world import MadeBatch, MadeRow, MadeWorld, make_world
from spark_audit.period import Period

FIRST = date(2026, 3, 1)
DAYS = [FIRST + timedelta(days=number) for number in range(3)]
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WAITING = "site2"
AT_ROWS = 240


def first_ms(batch: MadeBatch) -> int:
    return batch.packed.row.first_published_ms or 0


@dataclass(slots=True)
class ThreeDays:
    """`nights`: how many of them have their ledgers written."""

    folder: Path
    mesh: Mesh
    world: MadeWorld
    settled_on_second: list[MadeBatch] = field(default_factory=list)
    settled_on_third: list[MadeBatch] = field(default_factory=list)
    lost: MadeBatch | None = None
    nights: int = 0

    @classmethod
    def make(cls, folder: Path) -> ThreeDays:
        file, _ = write_mesh(folder, 3)
        text = file.read_text().replace("outage_window: 8h", "outage_window: 12h")
        file.write_text(text.replace("deadline: 1h", "deadline: 12h"))
        mesh = load_mesh(file)
        begin = Period.of_day(FIRST).from_ms
        world = make_world(mesh, ["orders"], 3_000, 4, begin, begin + 3 * DAY_MS, entries=8)
        made = cls(folder, mesh, world)
        made._hold("site1", begin + 22 * HOUR_MS, begin + 33 * HOUR_MS, made.settled_on_second)
        made._hold("site3", begin + 20 * HOUR_MS, begin + 53 * HOUR_MS, made.settled_on_third)
        made._lose(begin + DAY_MS)
        made._share_an_identity()
        rows = world.stage(WAITING, Stage.DELIVERED)
        rows.sort(key=lambda one: one.row.recorded_ms)
        return made

    def _hold(self, origin: str, from_ms: int, to_ms: int, held: list[MadeBatch]) -> None:
        cluster = self.world.cluster(origin)
        for batch in self.world.batches:
            row = batch.packed.row
            if row.origin == cluster and from_ms <= row.recorded_ms < to_ms:
                came = batch.delivered[WAITING]
                came.change(recorded_ms=max(came.row.recorded_ms, to_ms + len(held)))
                held.append(batch)

    def _lose(self, before_ms: int) -> None:
        lost = next(one for one in self.settled_on_second if first_ms(one) < before_ms)
        self.settled_on_second.remove(lost)
        self.world.stage(WAITING, Stage.DELIVERED).remove(lost.delivered[WAITING])
        self.lost = lost

    def leak_within_batch(self, site: str, hour: int) -> tuple[bytes, str]:
        """A message of the first day that the site delivers once more in that hour."""
        batch = self._of_first_day(site)
        again = cut(batch.delivered[site], 0, 1)
        again.change(recorded_ms=self.world.from_ms + hour * HOUR_MS)
        self._write(site, again)
        return batch.identity(0), site

    def leak_across_batches(self, site: str, hour: int) -> tuple[bytes, str]:
        """A message of the first day that its origin packs once more in that hour, and the site
        delivers; the others do not.
        """
        first = self._of_first_day(site)
        second = next(
            one
            for one in self.world.batches
            if one.packed.row.origin == first.packed.row.origin
            and first_ms(one) >= self.world.from_ms + hour * HOUR_MS
        )
        place = repeat(self._planting(), first, second, 1)
        for other, made in second.delivered.items():
            if other != site:
                set_outcome(made, place, Outcome.DUPLICATE)
        return first.identity(1), site

    def leak_of_what_waited(self, hour: int) -> tuple[bytes, str]:
        """A message of the first day that waited over its night, and comes twice on the second."""
        begin = self.world.from_ms
        waited = [one for one in self.settled_on_second if first_ms(one) < begin + DAY_MS]
        batch = next(one for one in waited if one.packed.row.count > 2)
        again = cut(batch.delivered[WAITING], 1, 2)
        again.change(recorded_ms=begin + hour * HOUR_MS)
        self._write(WAITING, again)
        return batch.identity(1), WAITING

    def _of_first_day(self, site: str) -> MadeBatch:
        """One that came from `WAITING` in the evening, and had nothing done to it."""
        cluster = self.world.cluster(WAITING)
        evening_ms = self.world.from_ms + 20 * HOUR_MS
        number = 3 if site == "site1" else 5
        mine = [
            one
            for one in self.world.batches
            if one.packed.row.origin == cluster and first_ms(one) >= evening_ms
        ]
        return [one for one in mine if one.packed.row.count > 2][number]

    def _write(self, site: str, made: MadeRow) -> None:
        rows = self.world.stage(site, Stage.DELIVERED)
        rows.append(made)
        rows.sort(key=lambda one: one.row.recorded_ms)

    def _share_an_identity(self) -> None:
        """What is lost has a message of the identity of an earlier one, and other content."""
        assert self.lost is not None
        cluster = self.world.cluster("site1")
        first = next(one for one in self.world.batches if one.packed.row.origin == cluster)
        place = repeat(self._planting(), first, self.lost, 0)
        for made in (self.lost.own, *self.lost.delivered.values()):
            contents = bytearray(made.row.contents)
            contents[8 * place : 8 * place + 8] = b"another!"
            made.change(contents=bytes(contents))
        for made in self.lost.delivered.values():
            set_outcome(made, place, Outcome.DELIVERED | CONFLICT)

    def _planting(self) -> Planting:
        return Planting(self.world, random.Random(1), Planted(), [])

    def next_night(self) -> date:
        """Writes what the ledgers have at two in the morning; the day before is to be audited."""
        begin = Period.of_day(FIRST).from_ms + 2 * HOUR_MS
        since = begin + self.nights * DAY_MS if self.nights else 0
        self.nights += 1
        write_ledgers(
            self.world, self.folder / "sites", AT_ROWS, since, begin + self.nights * DAY_MS
        )
        return DAYS[self.nights - 1]

    def of_day(self, batches: list[MadeBatch], number: int) -> int:
        """Messages of these that were published on that day."""
        period = Period.of_day(DAYS[number])
        return sum(
            one.packed.row.count
            for one in batches
            if period.from_ms <= first_ms(one) < period.to_ms
        )
