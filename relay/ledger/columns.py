"""Columns of ledger files: a row in Parquet, and how the files are written.

`parquet_schema` loads pyarrow, which costs 50 MB: only the process that makes files
(`relay.ledger.file`) calls it, and readers of ledgers; a node never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relay.ledger.rows import Event, LedgerRow

if TYPE_CHECKING:
    import pyarrow

    from relay.ledger.fingerprint import Fingerprint

LEDGER_VERSION = 3
"""Version of the files' columns; 2 has the fingerprints and the event `through`, 3 has `pieces`."""
ROWS_OF_A_GROUP = 1024
"""Rows of a row group. A reader pays for each group and column, whatever their size; the writer
holds one group in memory, 9 MB if all batches are full.
"""
_KINDS = {1: "messages", 2: "fragment", 3: "mark", 4: "canary", 5: "repair"}


def parquet_schema() -> pyarrow.Schema:
    """Columns of the ledger as Parquet. Loads pyarrow."""
    import pyarrow as pa

    time = pa.timestamp("ms", tz="UTC")
    texts = pa.list_(pa.string())
    return pa.schema(
        [
            pa.field("site", pa.string(), nullable=False),
            pa.field("state", pa.string(), nullable=False),
            pa.field("stage", pa.string(), nullable=False),
            pa.field("number", pa.int64(), nullable=False),
            pa.field("event", pa.string(), nullable=False),
            pa.field("kind", pa.string()),
            pa.field("origin", pa.string()),
            pa.field("incarnation", pa.binary()),
            pa.field("exchange", pa.string()),
            pa.field("lane", pa.int32(), nullable=False),
            pa.field("destinations", texts, nullable=False),
            pa.field("sequence", pa.int64()),
            pa.field("incarnation_sequence", pa.int64()),
            pa.field("revision", pa.string()),
            pa.field("path", texts, nullable=False),
            pa.field("neighbour", pa.string()),
            pa.field("fragment", pa.int32()),
            pa.field("pieces", pa.int32()),
            pa.field("recorded", time, nullable=False),
            pa.field("first_published", time),
            pa.field("last_published", time),
            pa.field("through", time),
            pa.field("position", pa.string()),
            pa.field("reason", pa.string()),
            pa.field("first_entry", pa.int32(), nullable=False),
            pa.field("count", pa.int32(), nullable=False),
            pa.field("identities", pa.binary()),
            pa.field("contents", pa.binary()),
            pa.field("outcomes", pa.binary()),
            pa.field("published", pa.binary()),
            pa.field("delivered", pa.binary()),
            pa.field("delivered_count", pa.int32()),
            pa.field("identity_sum_1", pa.int64()),
            pa.field("identity_sum_2", pa.int64()),
            pa.field("content_sum", pa.int64()),
        ],
        metadata={"isthmus.ledger.version": str(LEDGER_VERSION)},
    )


def parquet_options() -> dict[str, Any]:
    """Options of pyarrow's `ParquetWriter` and `write_table`."""
    packed = ("identities", "contents", "outcomes", "published", "delivered")
    texts = ("site", "state", "stage", "event", "kind", "origin", "incarnation", "exchange")
    lists = ("destinations.list.element", "path.list.element")
    return {
        "compression": "zstd",
        "use_dictionary": [*texts, *lists, "revision", "neighbour"],
        # Minimum and maximum of a packed column are useless, and as long as the column: they make
        # a footer of 300 KB, which every reader loads first.
        "write_statistics": [name for name in parquet_schema().names if name not in packed],
        # Detects damage within a page, which would read as other messages.
        "write_page_checksum": True,
    }


def parquet_values(
    site: str, state: str, number: int, row: LedgerRow, fingerprint: Fingerprint | None
) -> dict[str, Any]:
    """Values of one row by `parquet_schema`. `state` is the ID of the state folder, within which
    `number` counts the rows of a stage without a gap: a hole is a missing row.
    """
    batch = row.kind != 0
    numbered = batch or row.event is Event.THROUGH
    return {
        "site": site,
        "state": state,
        "stage": row.stage.name.lower(),
        "number": number,
        "event": row.event.name.lower(),
        "kind": _KINDS.get(row.kind, str(row.kind)) if batch else None,
        "origin": row.origin or None,
        "incarnation": row.incarnation if numbered else None,
        "exchange": row.exchange or None,
        "lane": row.lane,
        "destinations": list(row.destinations),
        "sequence": row.sequence if batch else None,
        "incarnation_sequence": row.incarnation_sequence if numbered else None,
        "revision": row.revision or None,
        "path": list(row.path),
        "neighbour": row.neighbour or None,
        "fragment": row.fragment if row.fragment >= 0 else None,
        "pieces": row.pieces if row.pieces >= 0 else None,
        "recorded": row.recorded_ms,
        "first_published": row.first_published_ms if batch else None,
        "last_published": row.last_published_ms if batch else None,
        "through": row.through_ms if row.through_ms >= 0 else None,
        "position": row.position or None,
        "reason": row.reason or None,
        "first_entry": row.first_entry,
        "count": row.count,
        "identities": row.identities or None,
        "contents": row.contents or None,
        "outcomes": row.outcomes or None,
        "published": row.published or None,
        "delivered": row.delivered or None,
        "delivered_count": fingerprint.messages if fingerprint else None,
        "identity_sum_1": fingerprint.identity_1 if fingerprint else None,
        "identity_sum_2": fingerprint.identity_2 if fingerprint else None,
        "content_sum": fingerprint.content if fingerprint else None,
    }
