"""A site's ledger is asked whether messages were delivered: rows in the state, and files."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from dedup.memory_store import MemoryStore
from relay.batches.batch import BatchKind
from relay.ledger.file_writer import FileWriters
from relay.ledger.rows import REDELIVERED, REPAIRED, BadLedgerRow, LedgerRow, Outcome, Stage
from relay.ledger_export import LedgerExport
from relay.ledger_proof import (
    EXPECTED_FOR_S,
    MOST_EXPECTED,
    FormerLedger,
    LedgerProof,
    LedgerUnreadable,
    Sought,
    put_former_ledgers,
)
from relay.state.node_state import TABLES, Commit, NodeState
from tests.virtual_time import run_in_virtual_time

NOON_MS = 1_700_049_600_000
DAY_MS = 86_400_000


def sought(number: int, *, origin: str = "", content: int = 0, exchange: str = "orders") -> Sought:
    return Sought(exchange, origin, number.to_bytes(16), (content or number).to_bytes(8))


def row(*outcomes: int, first: int = 1, recorded_ms: int = NOON_MS) -> LedgerRow:
    """Messages `first`, `first` + 1 and so on, with these outcomes."""
    numbers = range(first, first + len(outcomes))
    return LedgerRow(
        Stage.DELIVERED,
        recorded_ms,
        kind=BatchKind.MESSAGES,
        origin="paris",
        exchange="orders",
        count=len(outcomes),
        identities=b"".join(n.to_bytes(16) for n in numbers),
        contents=b"".join(n.to_bytes(8) for n in numbers),
        outcomes=bytes(outcomes),
    )


class Site:
    def __init__(self, folder: Path, state_id: bytes = b"\xab" * 16) -> None:
        self.state = NodeState(MemoryStore(TABLES))
        self.state.begin(state_id)
        self.export = LedgerExport(self.state, "tokyo", folder, FileWriters())
        self.proof = LedgerProof(self.state, folder, lambda slot: folder)

    def add(self, *rows: LedgerRow) -> None:
        commit = Commit()
        for each in rows:
            commit.row(each)
        self.state.write(commit)

    async def exported(self, *rows: LedgerRow) -> None:
        self.add(*rows)
        await self.export.roll(NOON_MS, everything=True)

    async def delivered(self, *what: Sought, since_ms: int = NOON_MS) -> set[Sought]:
        return await self.proof.delivered(what, since_ms)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "ledger")


SOME = (
    Outcome.DELIVERED,
    Outcome.DUPLICATE,
    Outcome.UNROUTED,
    Outcome.EXPIRED,
    Outcome.OWN,
    Outcome.DEAD,
    Outcome.DELIVERED | REDELIVERED,
    Outcome.QUARANTINED,
)
THERE = {sought(1), sought(3), sought(5), sought(7)}


@pytest.mark.parametrize("in_files", [False, True])
async def test_what_the_broker_had_is_told_from_what_it_had_not(site: Site, in_files: bool) -> None:
    site.add(row(*SOME))
    if in_files:
        await site.exported()
    assert await site.delivered(*map(sought, range(20))) == THERE


@pytest.mark.parametrize("in_files", [False, True])
async def test_another_content_exchange_or_origin_is_another_message(
    site: Site, in_files: bool
) -> None:
    brought = replace(
        row(Outcome.DELIVERED | REPAIRED, first=9),
        kind=BatchKind.REPAIR,
        origin="sydney",
        position="lima",
    )
    site.add(row(Outcome.DELIVERED), brought)
    if in_files:
        await site.exported()
    there = {sought(1), sought(1, origin="paris"), sought(9), sought(9, origin="lima")}
    others = {
        sought(1, content=7),
        sought(1, exchange="prices"),
        sought(1, origin="lima"),
        sought(9, origin="sydney"),
    }
    assert await site.delivered(*there, *others) == there


async def test_files_and_state_are_looked_through_together(site: Site) -> None:
    await site.exported(*(row(Outcome.DELIVERED, first=n) for n in range(1, 1500)))
    site.add(row(Outcome.DELIVERED, first=2000))
    wanted = [sought(n) for n in (1, 1499, 1500, 2000)]
    assert await site.delivered(*wanted) == {sought(1), sought(1499), sought(2000)}


async def test_files_of_days_before_the_message_are_left_out(site: Site, tmp_path: Path) -> None:
    await site.exported(row(Outcome.DELIVERED))
    assert await site.delivered(sought(1), since_ms=NOON_MS + DAY_MS) == {sought(1)}
    assert await site.delivered(sought(1), since_ms=NOON_MS + 2 * DAY_MS) == set()


@pytest.mark.parametrize("removed", [0, 1])
async def test_rows_that_are_missing_are_said_unless_what_is_sought_is_found(
    site: Site, tmp_path: Path, removed: int
) -> None:
    await site.exported(row(Outcome.DELIVERED))
    await site.exported(row(Outcome.DELIVERED, first=2))
    site.add(row(Outcome.DELIVERED, first=3))
    files = sorted((tmp_path / "ledger").rglob("*.parquet"))
    files[removed].unlink()
    with pytest.raises(LedgerUnreadable, match=f"rows {removed} to {removed} of its files"):
        await site.delivered(sought(9))
    there = {sought(2 - removed), sought(3)}
    assert await site.delivered(*there) == there


async def test_a_state_folder_that_was_made_anew_cannot_say_what_the_former_one_did(
    site: Site, tmp_path: Path
) -> None:
    await site.exported(row(Outcome.DELIVERED))
    anew = Site(tmp_path / "ledger", b"\xcd" * 16)
    await anew.exported(row(Outcome.DELIVERED, first=2))
    assert await anew.delivered(sought(1)) == {sought(1)}
    with pytest.raises(LedgerUnreadable, match="made anew"):
        await anew.delivered(sought(9))
    assert await anew.delivered(sought(9), since_ms=NOON_MS + DAY_MS) == set()


async def test_a_site_without_files_has_delivered_nothing(site: Site) -> None:
    assert await site.delivered(sought(1)) == set()


async def test_a_damaged_file_is_said(site: Site, tmp_path: Path) -> None:
    await site.exported(row(Outcome.DELIVERED))
    (file,) = (tmp_path / "ledger").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(LedgerUnreadable):
        await site.delivered(sought(2))


async def test_a_ledger_that_nobody_can_look_through_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.exported(row(Outcome.DELIVERED))
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(LedgerUnreadable, match="no process"):
        await site.delivered(sought(1))


async def test_an_answer_that_is_none_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.exported(row(Outcome.DELIVERED))
    monkeypatch.setattr("sys.executable", "/bin/echo")
    with pytest.raises(LedgerUnreadable, match="no answer"):
        await site.delivered(sought(1))


async def test_a_row_that_cannot_be_read_is_said(site: Site) -> None:
    commit = Commit()
    commit.row(row(Outcome.DELIVERED))
    site.state.write(commit)
    with (
        patch("relay.ledger_proof.decode_row", side_effect=BadLedgerRow("cut")),
        pytest.raises(LedgerUnreadable, match="cut"),
    ):
        await site.delivered(sought(1))


async def test_what_is_expected_is_looked_for_once_and_later_only_in_new_files(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.exported(row(Outcome.DELIVERED, first=1))
    await site.proof.expect([n.to_bytes(16) for n in range(1, 9)], NOON_MS)
    with monkeypatch.context() as nobody:
        nobody.setattr("sys.executable", "/nowhere/python")
        assert await site.delivered(sought(1), sought(2)) == {sought(1)}
        site.add(row(Outcome.DELIVERED, first=2))
        assert await site.delivered(sought(1), sought(2)) == {sought(1), sought(2)}
        with pytest.raises(LedgerUnreadable, match="no process"):
            await site.delivered(sought(9))  # not expected
        with pytest.raises(LedgerUnreadable, match="no process"):
            await site.delivered(sought(3), since_ms=NOON_MS - DAY_MS)  # older than was expected
    await site.exported()
    assert await site.delivered(*map(sought, range(1, 5))) == {sought(1), sought(2)}
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert await site.delivered(*map(sought, range(1, 5))) == {sought(1), sought(2)}


async def test_of_nothing_expected_nothing_is_looked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.exported(row(Outcome.DELIVERED, first=1))
    await site.proof.expect([(1).to_bytes(16)], NOON_MS)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    for _ in range(MOST_EXPECTED):  # a dry run asks so
        await site.proof.expect([], 0)
    assert await site.delivered(sought(1)) == {sought(1)}


def test_what_is_expected_is_kept_as_long_as_it_is_asked_for(tmp_path: Path) -> None:
    day = tmp_path / "date=2023-11-15"
    day.mkdir()
    (day / "delivered-abababab-0-0.parquet").touch()
    there = Sought("orders", "paris", *sought(1)[2:])

    async def asked_now_and_then() -> None:
        site = Site(tmp_path)
        with patch.object(LedgerProof, "_look_through", return_value={there}) as looked:
            await site.proof.expect([there.identity], NOON_MS)
            for _ in range(3):
                await asyncio.sleep(EXPECTED_FOR_S * 0.9)
                assert await site.delivered(there) == {there}
            assert looked.call_count == 1
            await asyncio.sleep(EXPECTED_FOR_S * 1.1)
            assert await site.delivered(there) == {there}
            assert looked.call_count == 2

    run_in_virtual_time(asked_now_and_then())


class SitesOfSlots:
    """Slot 2 of a site, which has the exchange since the site's slots were changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.former = Site(folder / "0")

    async def change(self) -> Site:
        """End the former state in order; return the slot that has the exchange from then on."""
        await self.former.exported()
        rows = self.former.state.next_row(Stage.DELIVERED)
        present = Site(self.folder / "2", b"\xcd" * 16)
        commit = Commit()
        put_former_ledgers(commit, [FormerLedger(0, (b"\xab" * 16).hex(), rows, NOON_MS)])
        present.state.write(commit)
        present.proof = LedgerProof(
            present.state, self.folder / "2", lambda slot: self.folder / str(slot)
        )
        return present


async def test_deliveries_of_the_slot_that_had_the_exchange_before_are_found(
    tmp_path: Path,
) -> None:
    slots = SitesOfSlots(tmp_path)
    slots.former.add(row(Outcome.DELIVERED))
    present = await slots.change()
    await present.exported(row(Outcome.DELIVERED, first=2))
    assert await present.delivered(sought(1), sought(2), sought(3)) == {sought(1), sought(2)}


async def test_a_former_ledger_that_is_not_whole_proves_nothing(tmp_path: Path) -> None:
    slots = SitesOfSlots(tmp_path)
    await slots.former.exported(row(Outcome.DELIVERED))
    slots.former.add(row(Outcome.DELIVERED, first=2))
    present = await slots.change()
    first, last = sorted((tmp_path / "0").glob("date=*/delivered-*.parquet"))
    last.rename(tmp_path / "put-away")
    with pytest.raises(LedgerUnreadable, match=r"row.* missing"):
        await present.delivered(sought(3))
    (tmp_path / "put-away").rename(last)
    first.unlink()
    with pytest.raises(LedgerUnreadable, match=r"row.* missing"):
        await present.delivered(sought(3))


async def test_the_first_slot_s_former_state_was_not_lost(tmp_path: Path) -> None:
    slots = SitesOfSlots(tmp_path)
    slots.former.add(row(Outcome.DELIVERED))
    await slots.change()
    again = Site(tmp_path / "0", b"\xef" * 16)
    with pytest.raises(LedgerUnreadable, match="made anew"):
        await again.delivered(sought(3))
    commit = Commit()
    put_former_ledgers(commit, [FormerLedger(0, (b"\xab" * 16).hex(), 1, NOON_MS)])
    again.state.write(commit)
    again.proof = LedgerProof(again.state, tmp_path / "0", lambda slot: tmp_path / str(slot))
    assert await again.delivered(sought(1), sought(3)) == {sought(1)}


async def test_a_former_ledger_from_before_the_message_may_be_gone(tmp_path: Path) -> None:
    slots = SitesOfSlots(tmp_path)
    slots.former.add(row(Outcome.DELIVERED))
    present = await slots.change()
    for file in (tmp_path / "0").glob("date=*/*.parquet"):
        file.unlink()
    assert await present.delivered(sought(1), since_ms=NOON_MS + 2 * DAY_MS) == set()


async def test_what_the_former_slot_s_next_state_exports_is_no_lost_predecessor(
    tmp_path: Path,
) -> None:
    slots = SitesOfSlots(tmp_path)
    slots.former.add(row(Outcome.DELIVERED))
    present = await slots.change()
    again = Site(tmp_path / "0", b"\xef" * 16)
    await again.exported(row(Outcome.DELIVERED, first=5, recorded_ms=NOON_MS + DAY_MS))
    assert await present.delivered(sought(1), sought(3)) == {sought(1)}
