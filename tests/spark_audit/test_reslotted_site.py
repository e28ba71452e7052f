"""A site that is cut into four slots, and later into one again: its states ended in order, so that
losses, duplicates and what is on its way are told apart as if it had had one state.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from relay.ledger.rows import Event, Stage
from spark_audit.generate.files import write_ledgers, write_mesh, write_revision
from spark_audit.generate.generator import generate_ledgers
from spark_audit.generate.planting import Planted, Planting
from spark_audit.generate.reslotting import ENTRIES, EXCHANGES, SLOT_MAPS, reslotted
from spark_audit.generate.world import MadeBatch, make_world
from spark_audit.ledger_search import LedgerSearch
from spark_audit.level import Level
from spark_audit.report.report import AuditVerdict
from spark_audit.trace import trace
from tests.spark_audit.conftest import DAY, AuditOf
from tests.spark_audit.test_planted_faults import check
from tests.spark_audit.test_several_nodes import share
from tests.spark_audit.test_trace import details_at, trace_of

KINDS = ["lost-around-reslot", "leaked-around-reslot"]


def reslotted_site(made: Path) -> Path:
    """Folder of the site that has files of several slots."""
    (site,) = {folder.parent for folder in (made / "sites").glob("*/slots")}
    return site


@pytest.mark.spark
def test_a_site_that_is_cut_otherwise_twice_lacks_nothing(
    tmp_path: Path, audit_of: AuditOf
) -> None:
    planted = generate_ledgers(tmp_path / "made", 3, 3_000, 1, DAY, ["reslot"])
    slots = reslotted_site(tmp_path / "made") / "slots"
    assert {folder.name for folder in slots.iterdir()} == {"1", "2", "3"}
    report = audit_of(tmp_path / "made")
    assert report.verdict is AuditVerdict.PROVEN, report.why_not_proven
    check(planted, report)


@pytest.mark.spark
@pytest.mark.parametrize("level", Level)
def test_losses_and_duplicates_before_and_after_are_found_and_no_others(
    tmp_path: Path, audit_of: AuditOf, level: Level
) -> None:
    planted = generate_ledgers(tmp_path / "made", 3, 6_000, 2, DAY, KINDS)
    assert {one.kind for one in planted.findings} == {"lost", "leaked duplicate"}
    check(planted, audit_of(tmp_path / "made", level=level))


@pytest.mark.spark
def test_slots_that_several_nodes_have_exported_are_as_good(
    tmp_path: Path, audit_of: AuditOf
) -> None:
    made = tmp_path / "nodes"
    planted = generate_ledgers(made, 3, 6_000, 3, DAY, KINDS, at_rows=256)
    for site in sorted((made / "sites").iterdir()):
        assert share(site) > 0
    assert list(made.glob("sites/*/nodes/*/slots/2/ledger/date=*/*.parquet"))
    check(planted, audit_of(made))


def ends(site: Path, slot: int, stage: str = "delivered") -> list[Path]:
    """Files of a slot whose last row is that its state ended."""
    ledger = site / "ledger" if slot == 0 else site / "slots" / str(slot) / "ledger"
    return [
        file
        for file in sorted(ledger.glob(f"date=*/{stage}-*.parquet"))
        if pq.read_table(file, partitioning=None)["event"].to_pylist()[-1] == "ended"
    ]


@pytest.mark.spark
def test_a_state_whose_end_is_missing_leaves_open_what_is_missing_after_it(
    tmp_path: Path, audit_of: AuditOf
) -> None:
    made = tmp_path / "made"
    planted = generate_ledgers(made, 3, 6_000, 2, DAY, ["lost-around-reslot"], at_rows=64)
    site = reslotted_site(made)
    # The state before the first change: positions that its successors tell of prove nothing.
    ended = ends(site, 0)[0]
    ended.unlink()
    report = audit_of(made)
    assert report.verdict is not AuditVerdict.PROVEN
    at = sorted(one.identity for one in planted.findings if one.destination == site.name)
    elsewhere = sorted(one.identity for one in planted.findings if one.destination != site.name)
    found = {row["identity"] for row in report.table.collect()}
    assert set(elsewhere) <= found
    assert report.totals["unproven"] >= len(set(at) - found) > 0


class HeldUp:
    """A mesh with a site that is cut otherwise, of whose batches some never come to a site."""

    def __init__(self, folder: Path, *, from_site: bool) -> None:
        _, mesh = write_mesh(folder, 3, EXCHANGES)
        self.folder = folder
        self.world = make_world(mesh, EXCHANGES, 6_000, 5, DAY.from_ms, DAY.to_ms, ENTRIES)
        free = [one for one in self.world.batches if one.packed.row.count > 3]
        self.planting = Planting(self.world, random.Random(5), Planted(), free)
        cut = reslotted(self.planting)
        other = next(site for site in sorted(mesh.sites) if site != cut)
        self.cut, self.from_site = cut, from_site
        self.origin, self.at = (cut, other) if from_site else (other, cut)

    def flow(self, exchange: str, era: int) -> list[MadeBatch]:
        """Batches of the flow that were packed, or delivered, in this era of the cut site."""
        cluster = self.world.cluster(self.origin)
        return [
            one
            for one in self.world.batches
            if (one.packed.row.origin, one.packed.row.exchange) == (cluster, exchange)
            and self.world.era(
                self.cut,
                (one.packed if self.from_site else one.delivered[self.at]).row.recorded_ms,
            )
            == era
        ]

    def hold(self, batch: MadeBatch) -> None:
        self.planting.take_out(self.at, batch.delivered[self.at])

    def without_through(self, exchange: str) -> None:
        """Take out the last row of the flow at the site, which tells of all that was packed."""
        rows = self.world.stage(self.at, Stage.DELIVERED)
        cluster = self.world.cluster(self.origin)
        rows[:] = [
            made
            for made in rows
            if made.row.event is not Event.THROUGH
            or (made.row.origin, made.row.exchange) != (cluster, exchange)
        ]

    def identities(self, batches: list[MadeBatch]) -> set[str]:
        return {
            one.identity(entry).hex() for one in batches for entry in range(one.packed.row.count)
        }

    def write(self) -> None:
        write_ledgers(self.world, self.folder / "sites", at_rows=256)

    def why(self, batch: MadeBatch) -> str:
        """Return the reason that a trace gives for a batch's message at the site."""
        (message,) = trace(
            LedgerSearch.open(str(self.folder / "sites")), [batch.identity(1)]
        ).messages
        (why,) = [
            step.text for step in message.steps if (step.site, step.what) == (self.at, "missing")
        ]
        return why


def held_up(folder: Path, *, from_site: bool) -> tuple[HeldUp, list[MadeBatch], list[MadeBatch]]:
    """Lose the last orders before each change, which gives them another slot, and hold up all
    prices behind the second change.
    """
    made = HeldUp(folder, from_site=from_site)
    lost = [made.flow("orders", era)[-1] for era in (0, 1)]
    pending = made.flow("prices", 2)
    for batch in [*lost, *pending]:
        made.hold(batch)
    made.without_through("prices")
    made.write()
    return made, lost, pending


@pytest.mark.spark
@pytest.mark.parametrize("from_site", [False, True])
def test_what_is_on_its_way_over_a_change_is_told_from_what_is_lost(
    tmp_path: Path, audit_of: AuditOf, *, from_site: bool
) -> None:
    made, lost, pending = held_up(tmp_path / "made", from_site=from_site)
    report = audit_of(tmp_path / "made")
    assert {row["identity"] for row in report.table.collect()} == made.identities(lost)
    assert set(report.findings) == {"lost"}
    others = [one for one in made.world.batches if one not in pending]
    never_came = made.identities(pending) - made.identities(others)
    assert report.totals["pending"] == len(never_came) > 0
    assert report.totals["unproven"] == 0


@pytest.mark.parametrize("from_site", [False, True])
def test_a_trace_tells_what_is_on_its_way_from_what_is_lost(
    tmp_path: Path, *, from_site: bool
) -> None:
    made, lost, pending = held_up(tmp_path / "made", from_site=from_site)
    for batch in lost:
        assert made.why(batch).startswith("lost: ")
    assert made.why(pending[0]).endswith(": pending")


@pytest.mark.parametrize(
    # Of slot 2, where orders were between the changes, or of the first state.
    ("slot", "told"),
    [(2, ["lost: was", "cannot be told"]), (0, ["cannot be told", "cannot be told"])],
)
def test_a_trace_does_not_tell_what_a_state_without_its_end_may_have_had(
    tmp_path: Path, slot: int, told: list[str]
) -> None:
    made, lost, _ = held_up(tmp_path / "made", from_site=False)
    ends(tmp_path / "made" / "sites" / made.cut, slot)[0].unlink()
    for batch, words in zip(lost, told, strict=True):
        assert words in made.why(batch)


def test_a_trace_finds_what_was_delivered_in_every_slot_and_state(tmp_path: Path) -> None:
    planted = generate_ledgers(tmp_path / "made", 3, 6_000, 2, DAY, KINDS)
    for one in planted.findings:
        found = trace_of(tmp_path, one.identity)
        settled = details_at(found, one.destination, "settled")
        missing = details_at(found, one.destination, "missing")
        if one.kind == "lost":
            assert settled == []
            assert [text[:6] for text in missing] == ["lost: "]
        else:
            assert [text[:10] for text in settled] == ["delivered:"] * 2


def test_a_trace_goes_by_the_slots_of_all_revisions(tmp_path: Path) -> None:
    made, lost, _ = held_up(tmp_path / "made", from_site=False)
    site = tmp_path / "made" / "sites" / made.cut
    for slot in set(range(SLOT_MAPS[1].count)) - {0, SLOT_MAPS[1].of("orders")}:
        shutil.rmtree(site / "slots" / str(slot))
    assert [made.why(batch)[:6] for batch in lost] == ["lost: ", "lost: "]


def take_up(made: HeldUp) -> Path:
    """Write when the site took up the revisions of its slots; its folder."""
    site = made.folder / "sites" / made.cut
    _, cut, present = made.world.eras[made.cut]
    for mesh, era in ((made.world.earlier[0], cut), (made.world.mesh, present)):
        write_revision(mesh, site / "ledger", era.from_ms + 3_600_000)
    return site


def test_a_trace_does_not_tell_what_a_slot_without_a_ledger_may_have_had(tmp_path: Path) -> None:
    made, lost, pending = held_up(tmp_path / "made", from_site=False)
    site = take_up(made)
    assert [made.why(batch)[:6] for batch in lost] == ["lost: ", "lost: "]
    shutil.rmtree(site / "slots" / "2")
    assert [made.why(batch).partition(" of ")[2] for batch in lost] == [
        "slot 2, where the exchange was in this time: cannot be told"
    ] * 2
    assert made.why(pending[-1]).endswith(": pending")


@pytest.mark.spark
def test_a_slot_without_a_ledger_that_the_site_had_in_the_time_proves_nothing(
    tmp_path: Path, audit_of: AuditOf
) -> None:
    made, lost, _ = held_up(tmp_path / "made", from_site=False)
    site = take_up(made)
    shutil.rmtree(site / "slots" / "2")
    report = audit_of(tmp_path / "made")
    assert report.findings == {}
    assert report.totals["unproven"] > sum(one.packed.row.count for one in lost)
    assert any("slot 2, which the site had" in why for why in report.why_not_proven)
