"""The ledger's rows: small, cheap, and the same after the store."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from relay.batches.time_offsets import pack_offsets, unpack_offsets
from relay.ledger.columns import parquet_schema, parquet_values
from relay.ledger.rows import (
    CONFLICT,
    OUTCOME_MASK,
    REDELIVERED,
    REPAIRED,
    BadLedgerRow,
    Event,
    LedgerRow,
    Outcome,
    Stage,
    decode_row,
    encode_row,
    ended_rows,
    pack_contents,
    recorded_ms_of,
)

TIMES = [1_700_000_000_000 + 3 * n for n in range(3)]
ROW = LedgerRow(
    stage=Stage.DELIVERED,
    recorded_ms=1_700_000_005_000,
    kind=1,
    origin="paris",
    incarnation=b"\x07" * 8,
    exchange="orders",
    lane=2,
    destinations=("sydney", "tokyo"),
    sequence=41,
    incarnation_sequence=99,
    revision="r1",
    path=("paris", "tokyo"),
    first_published_ms=TIMES[0],
    last_published_ms=TIMES[-1],
    first_entry=10,
    count=3,
    identities=bytes(range(48)),
    contents=pack_contents([b"a" * 16, b"b" * 16, b"c" * 16]),
    outcomes=bytes([Outcome.DELIVERED, Outcome.DUPLICATE, Outcome.DELIVERED | REDELIVERED]),
    published=pack_offsets(TIMES, TIMES[0]),
    delivered=pack_offsets([1_700_000_004_990] * 3, 1_700_000_005_000),
)
IDLE = LedgerRow(
    Stage.LINKED_OUT, 5, Event.IDLE, neighbour="tokyo", position="paris/00/x", through_ms=4
)

ROW_AS_FIRST_WRITTEN = bytes.fromhex(
    "01040101887be5cf8b0100000068e5cf8b0100000668e5cf8b010000ffffffffffffffff29000000"
    "0000000063000000000000000707070707070707020000000a00000003000000ffffffff2e000000"
    "057061726973066f726465727302723100000002067379646e657905746f6b796f02057061726973"
    "05746f6b796f30000000000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d"
    "1e1f202122232425262728292a2b2c2d2e2f18000000616161616161616162626262626262626363"
    "636363636363030000000103210c0000000000000003000000060000000c000000f6fffffff6ffff"
    "fff6ffffff"
)
"""By the first version of the program; the state folders of upgraded nodes have such rows."""


def test_rows_that_an_earlier_version_left_in_the_state_are_read() -> None:
    assert decode_row(ROW_AS_FIRST_WRITTEN) == ROW


def test_a_row_is_the_same_after_the_store() -> None:
    for row in (ROW, IDLE, replace(ROW, fragment=7, pieces=9, reason="pourquoi ? \x1f\n")):
        data = encode_row(row)
        assert decode_row(data) == row
        assert recorded_ms_of(data) == row.recorded_ms


def test_a_column_that_does_not_fit_the_count_is_refused() -> None:
    with pytest.raises(ValueError, match="47 bytes for 3"):
        encode_row(replace(ROW, identities=bytes(47)))


def test_damaged_bytes_are_refused() -> None:
    data = encode_row(ROW)
    for damaged in (
        b"",
        b"\xff" + data[1:],
        data[:-1],
        data + b"x",
        data[:50],
        b"\x02\x09" + data[2:],
        b"\x01" + data[1:],
    ):
        with pytest.raises(BadLedgerRow):
            decode_row(damaged)


def test_times_are_kept_to_the_millisecond_and_stop_at_the_end_of_their_range() -> None:
    base = 1_700_000_000_000
    times = [base, base - 5, base + 1_000_000]
    assert unpack_offsets(pack_offsets(times, base), base) == times
    month = 31 * 86_400_000
    assert unpack_offsets(pack_offsets([base + month, base - month], base), base) == [
        base + 2**31 - 1,
        base - 2**31 + 1,
    ]


def test_outcomes_and_flags_share_a_byte() -> None:
    assert all(outcome & OUTCOME_MASK == outcome for outcome in Outcome)
    flags = (CONFLICT, REDELIVERED, REPAIRED)
    assert all(flag & OUTCOME_MASK == 0 for flag in flags)
    assert sum(flags) + OUTCOME_MASK == CONFLICT | REDELIVERED | REPAIRED | OUTCOME_MASK


def test_a_row_fits_the_schema_of_the_files() -> None:
    import pyarrow as pa

    table = pa.Table.from_pylist(
        [parquet_values("tokyo", "5e", 7, ROW, None), parquet_values("tokyo", "5e", 8, IDLE, None)],
        parquet_schema(),
    )
    first, second = table.to_pylist()
    assert (
        set(first)
        == set(parquet_values("tokyo", "5e", 7, ROW, None))
        == set(parquet_schema().names)
    )
    assert (first["stage"], first["kind"], first["number"]) == ("delivered", "messages", 7)
    assert first["destinations"] == ["sydney", "tokyo"]
    assert first["identities"] == ROW.identities
    assert int(first["recorded"].timestamp() * 1000) == ROW.recorded_ms
    assert (second["event"], second["sequence"], second["origin"]) == ("idle", None, None)


def test_a_state_that_ends_in_order_says_so_in_every_stage() -> None:
    rows = ended_rows(1_700_000_005_000, "4 slots instead of 1")
    assert [row.stage for row in rows] == list(Stage)
    for number, row in enumerate(rows):
        assert decode_row(encode_row(row)) == row
        values = parquet_values("tokyo", "5e", number, row, None)
        assert (values["event"], values["reason"]) == ("ended", "4 slots instead of 1")
        # Of no batch and no incarnation: nothing that counts either takes it for one.
        assert (values["kind"], values["incarnation"], values["count"]) == (None, None, 0)


def test_a_node_that_writes_rows_does_not_load_pyarrow() -> None:
    code = (
        "import sys; import relay.state.node_state; from relay.ledger.rows import *;"
        "encode_row(LedgerRow(Stage.PACKED, 1)); sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
