"""docs/ledger.md tells every column, stage, event, outcome and flag as the program has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.ledger import columns, rows
from relay.ledger.columns import parquet_schema
from relay.ledger.fingerprint import CONTENT_SEED, SEEDS, Fingerprint, fingerprints
from relay.ledger.rows import Event, LedgerRow, Outcome, Stage
from relay.ledger_export import RollRule

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "ledger.md").read_text()


def table(heading: str) -> list[tuple[str, ...]]:
    """The cells of all tables under a heading, without code marks."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [tuple(cell.strip(" `") for cell in line.strip("|").split("|")) for line in lines]


def test_every_column_is_told_with_its_type_in_the_order_of_the_files() -> None:
    schema = parquet_schema()
    assert [row[:2] for row in table("Columns")] == [
        (field.name, str(field.type).replace("list<item: string>", "list of string"))
        for field in schema
    ]
    assert all(row[2] for row in table("Columns"))
    assert schema.metadata == {b"isthmus.ledger.version": str(columns.LEDGER_VERSION).encode()}
    assert f"Files of version {columns.LEDGER_VERSION}" in PAGE


@pytest.mark.parametrize(("heading", "known"), [("Stages", Stage), ("Events", Event)])
def test_every_stage_and_event_is_told(heading: str, known: type[Stage] | type[Event]) -> None:
    assert [row[:2] for row in table(heading)] == [
        (one.name.lower(), str(one.value)) for one in known
    ]


def test_every_outcome_and_flag_is_told() -> None:
    told = dict(row[:2] for row in table("Outcomes"))
    flags = {
        name.lower(): f"0x{getattr(rows, name):02x}"
        for name in ("CONFLICT", "REDELIVERED", "REPAIRED")
    }
    assert told == {one.name.lower(): str(one.value) for one in Outcome} | flags


def test_when_a_file_is_made_is_told_as_it_is() -> None:
    rule = RollRule()
    assert f"after {rule.after_s / 60:g} minutes, at {rule.at_rows} rows" in PAGE


def test_the_fingerprints_and_their_example_are_the_programs() -> None:
    module = (TOP / "relay" / "ledger" / "fingerprint.py").read_text()
    section = PAGE.split("\n## Fingerprints\n", 1)[1]
    drawn = [line for line in section.splitlines() if line.startswith("    ")]
    assert drawn
    assert all(line in module for line in drawn)
    assert all(f"0x{seed:X}" in section for seed in (*SEEDS, CONTENT_SEED))
    example = LedgerRow(
        Stage.DELIVERED,
        0,
        count=1,
        identities=bytes(range(16)),
        contents=bytes(range(8)),
        outcomes=bytes([Outcome.DELIVERED]),
    )
    numbers = [int(number) for number in re.findall(r"-?\d{16,}", section)]
    assert fingerprints([example]) == [Fingerprint(1, *numbers)]


def test_the_page_is_led_to() -> None:
    assert "ledger.md" in (TOP / "docs" / "architecture.md").read_text()
