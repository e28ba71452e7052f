"""Writes a made world as ledgers: the files that nodes would have left, and a mesh file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from federation.mesh_json import mesh_as_json
from relay.ledger.fingerprint import fingerprints
from relay.ledger.rows import Stage, parquet_schema, parquet_values
from spark_audit.made_world import MadeRow, MadeWorld

ROWS_OF_A_FILE = 4096
_DAY_MS = 86_400_000


def write_mesh(folder: Path, sites: int, more: str = "") -> tuple[Path, Mesh]:
    """A mesh file with so many sites, all linked with each other, and its mesh."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mesh.yaml"
    lines = ["mesh: made", "outage_window: 1h", "topology: complete", "sites:"]
    lines += [f"  site{number}: {{}}" for number in range(1, sites + 1)]
    lines += ["exchanges:", "  - name: orders", *([f"    {more}"] if more else [])]
    file.write_text("\n".join(lines) + "\n")
    return file, load_mesh(file)


def write_ledgers(world: MadeWorld, folder: Path, at_rows: int = ROWS_OF_A_FILE) -> None:
    """FOLDER/SITE/ledger/... of every site."""
    for site in world.mesh.sites:
        ledger = folder / site / "ledger"
        for stage in Stage:
            for state, rows in _by_state(world, site, stage):
                _write_stage(ledger, site, stage, state, rows, at_rows)
        revisions = ledger / "revisions"
        revisions.mkdir(parents=True, exist_ok=True)
        content = {
            "format": 1,
            "revision": world.mesh.revision,
            "taken_up_ms": world.from_ms - 3_600_000,
            "mesh": mesh_as_json(world.mesh),
        }
        (revisions / f"{world.mesh.revision}.json").write_text(json.dumps(content, indent=1))


def _by_state(world: MadeWorld, site: str, stage: Stage) -> Iterator[tuple[str, list[MadeRow]]]:
    by_state: dict[str, list[MadeRow]] = {}
    for made in world.stage(site, stage):
        by_state.setdefault(world.state_of.get(id(made), world.states[site]), []).append(made)
    yield from by_state.items()


def _write_stage(
    ledger: Path, site: str, stage: Stage, state: str, rows: list[MadeRow], at_rows: int
) -> None:
    begin = 0
    while begin < len(rows):
        day = rows[begin].row.recorded_ms // _DAY_MS
        end = begin
        while end < min(len(rows), begin + at_rows) and rows[end].row.recorded_ms // _DAY_MS == day:
            end += 1
        date = datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
        name = f"{stage.name.lower()}-{state[:8]}-{begin:012}-{end - 1:012}.parquet"
        _write_file(ledger / f"date={date}" / name, site, state, begin, rows[begin:end])
        begin = end


def _write_file(path: Path, site: str, state: str, first: int, rows: list[MadeRow]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    told = [made.row for made in rows]
    values = [
        parquet_values(site, state, number, row, fingerprint)
        for number, (row, fingerprint) in enumerate(
            zip(told, fingerprints(told), strict=True), first
        )
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = parquet_schema()
    text = [one.name for one in schema if one.type == pa.string()]
    table = pa.Table.from_pylist(values, schema)
    pq.write_table(table, path, compression="zstd", use_dictionary=text, write_page_checksum=True)
