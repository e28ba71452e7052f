"""One message's life is told from the ledgers of all sites, and what is missing of it."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from dedup.identity import text_identity
from isthmus.cli import app
from isthmus.commands.trace import identities_of
from spark_audit.generate.generator import generate_ledgers
from spark_audit.generate.planting import PlantedFinding
from spark_audit.ledger_search import LedgerSearch, places
from spark_audit.period import Period
from spark_audit.trace import TraceResult, trace

_BEGIN_MS = Period.of_day(date(2026, 3, 1)).from_ms
HOUR = Period(_BEGIN_MS, _BEGIN_MS + 3_600_000)
SITES = ("site1", "site2", "site3")


def made(folder: Path, *faults: str) -> list[PlantedFinding]:
    return generate_ledgers(folder / "made", 3, 3000, 5, HOUR, faults, at_rows=64).findings


def trace_of(folder: Path, identity: str, day: date | None = None) -> TraceResult:
    search = LedgerSearch.open(str(folder / "made" / "sites"))
    return trace(search, [bytes.fromhex(identity)], day)


def details_at(found: TraceResult, site: str, what: str) -> list[str]:
    (message,) = found.messages
    return [step.text for step in message.steps if (step.site, step.what) == (site, what)]


@pytest.mark.parametrize("day", [None, date(2026, 3, 1)])
def test_a_lost_message_is_told_from_its_publishing_to_where_it_lacks(
    tmp_path: Path, day: date | None
) -> None:
    (lost,) = made(tmp_path, "lost")
    found = trace_of(tmp_path, lost.identity, day)
    (message,) = found.messages
    assert message.exchange == "orders"
    assert [step.what for step in message.steps[:2]] == ["published", "packed"]
    assert {step.site for step in message.steps[:2]} == {lost.origin}
    times = [step.at_ms for step in message.steps if step.at_ms is not None]
    assert times == sorted(times)
    (other,) = set(SITES) - {lost.origin, lost.destination}
    assert details_at(found, lost.origin, "settled") == [
        "its own: entered at the barrier, not published back"
    ]
    assert details_at(found, other, "settled") == ["delivered: the site's broker confirmed it"]
    assert details_at(found, other, "came") == [f"from {lost.origin}, in the site's log"]
    assert len(details_at(found, lost.origin, "sent")) == 2
    assert details_at(found, lost.destination, "settled") == []
    (why,) = details_at(found, lost.destination, "missing")
    assert why.startswith("lost: ")
    (came,) = [step for step in message.steps if step.site == other and step.what == "settled"]
    assert came.path == (lost.origin, other)


@pytest.mark.parametrize("doubt", ["pending", "pending-after-clock-set-back"])
def test_what_has_not_come_yet_is_pending_and_not_lost(tmp_path: Path, doubt: str) -> None:
    made(tmp_path, doubt)
    search = LedgerSearch.open(str(tmp_path / "made" / "sites"))
    last = packed_last(search)
    found = [trace(search, [one]) for one in last]
    missing = [
        step.text for one in found for step in one.messages[0].steps if step.what == "missing"
    ]
    assert missing
    assert all(said.endswith(": pending") for said in missing)


def packed_last(search: LedgerSearch) -> list[bytes]:
    """The first message of each site's last batch."""
    rows: dict[str, Any] = {}
    for row in search.matching(search.of_stage("packed"), None, [("event", "=", "batch")]):
        if row["site"] not in rows or rows[row["site"]]["number"] < row["number"]:
            rows[row["site"]] = row
    return [row["identities"][:16] for row in rows.values()]


def test_a_site_without_a_ledger_is_not_said_to_have_lost_it(tmp_path: Path) -> None:
    (lost,) = made(tmp_path, "lost")
    for file in (tmp_path / "made" / "sites" / lost.destination).rglob("*.parquet"):
        file.unlink()
    (why,) = details_at(trace_of(tmp_path, lost.identity), lost.destination, "missing")
    assert why.endswith("cannot be told")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (lost,) = made(tmp_path, "lost")
    (other,) = set(SITES) - {lost.origin, lost.destination}
    files = sorted((tmp_path / "made" / "sites" / other).rglob("delivered-*.parquet"))
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    found = trace_of(tmp_path, lost.identity)
    assert {name.rsplit("/", 1)[-1] for name in found.bad} == {file.name for file in files}
    assert details_at(found, other, "missing") != []


def test_a_duplicate_shows_each_time_that_it_was_delivered(tmp_path: Path) -> None:
    leaked = made(tmp_path, "leaked-across-batches")[0]
    found = trace_of(tmp_path, leaked.identity)
    delivered = details_at(found, leaked.destination, "settled")
    assert len(delivered) == 2


def test_only_whole_identities_count() -> None:
    identity = bytes(range(16))
    packed = b"\xff" * 8 + identity + b"\xff" * 8 + identity
    assert places(packed, [identity]) == [2]
    assert places(None, [identity]) == []


def test_an_id_is_taken_in_every_way_that_it_may_be_meant() -> None:
    text = "5b1c4a3e-8a53-4b0c-9a53-8f4f7a1c2d3e"
    plain = bytes.fromhex(text.replace("-", ""))
    assert list(identities_of(text)) == [plain, text_identity(text.encode())]
    assert plain in identities_of(text.replace("-", ""))
    for urn in (f"urn:uuid:{text}", f"URN:UUID:{text.upper()}"):
        assert list(identities_of(urn)) == [plain, text_identity(urn.encode())]
    for other in (f"urn:guid:{text}", f"urn:uuid:{text[:-1]}é", "urn:uuid:"):
        assert list(identities_of(other)) == [text_identity(other.encode())]
    assert list(identities_of("order 17")) == [text_identity(b"order 17")]


def test_the_command_tells_it(tmp_path: Path) -> None:
    (lost,) = made(tmp_path, "lost")
    words = [str(tmp_path / "made/mesh.yaml"), lost.identity]
    words += ["--ledger", str(tmp_path / "made/sites")]
    result = CliRunner().invoke(app, ["trace", *words], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for part in (
        lost.identity,
        "exchange orders",
        "taken off its exchange",
        "lost: was to have it",
    ):
        assert part in result.stdout
    for given, kind in ((lost.identity, "an identity"), (UUID(lost.identity).urn, "a UUID")):
        words[1] = given
        result = CliRunner().invoke(app, ["trace", *words, "--json"])
        content = json.loads(result.stdout)
        assert content["identities"][lost.identity] == kind
        assert content["messages"][0]["steps"][0]["what"] == "published"


def test_what_is_not_found_says_what_was_searched(tmp_path: Path) -> None:
    made(tmp_path)
    words = [str(tmp_path / "made/mesh.yaml"), "order 17", "--date", "2026-03-01"]
    words += ["--ledger", str(tmp_path / "made/sites")]
    result = CliRunner().invoke(app, ["trace", *words])
    assert result.exit_code == 1
    assert "order 17: no ledger has it. Searched: " in result.stdout
    assert "of site1, site2, site3" in result.stdout.replace("\n", " ")
    words[-1] = str(tmp_path / "nowhere")
    result = CliRunner().invoke(app, ["trace", *words])
    assert result.exit_code == 2
    assert "nowhere" in result.stderr
