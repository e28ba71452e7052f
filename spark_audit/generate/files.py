"""Write a made world as the files that nodes would leave: ledgers and a mesh file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from federation.mesh_json import mesh_as_json
from relay.ledger.columns import ROWS_OF_A_GROUP, parquet_options, parquet_schema, parquet_values
from relay.ledger.fingerprint import fingerprints
from relay.ledger.rows import Stage
from spark_audit.generate.reslotting import rows_by_state
from spark_audit.generate.world import MadeRow, MadeWorld

ROWS_OF_A_FILE = 4096
_DAY_MS = 86_400_000


def write_mesh(
    folder: Path, sites: int, exchanges: Sequence[str] = ("orders",)
) -> tuple[Path, Mesh]:
    """Write and load a mesh file with `sites` sites, all linked with each other."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mesh.yaml"
    lines = ["mesh: made", "outage_window: 8h", "topology: complete", "sites:"]
    lines += [f"  site{number}: {{}}" for number in range(1, sites + 1)]
    lines.append("exchanges:")
    for exchange in exchanges:
        lines += [f"  - name: {exchange}", "    deadline: 1h"]
    file.write_text("\n".join(lines) + "\n")
    return file, load_mesh(file)


def write_ledgers(
    world: MadeWorld,
    folder: Path,
    at_rows: int = ROWS_OF_A_FILE,
    since_ms: int = 0,
    until_ms: int = 2**62,
) -> None:
    """Write FOLDER/SITE/ledger/... of every site, and of further slots: rows recorded from
    `since_ms` (inclusive) to `until_ms`, if the rows are in order.
    """
    for site in world.mesh.sites:
        ledger = folder / site / "ledger"
        for stage in Stage:
            for slot, state, rows in _by_state(world, site, stage):
                of_slot = folder / site / "slots" / str(slot) / "ledger" if slot else ledger
                begin = sum(made.row.recorded_ms < since_ms for made in rows)
                until = sum(made.row.recorded_ms < until_ms for made in rows)
                _write_stage(of_slot, site, stage, state, rows[:until], at_rows, begin)
        write_revision(world.mesh, ledger, world.from_ms)
        for mesh in world.earlier:
            write_revision(mesh, ledger, world.from_ms - 3_600_000)


def write_revision(mesh: Mesh, ledger: Path, from_ms: int) -> None:
    """Write the mesh's document, taken up an hour before."""
    revisions = ledger / "revisions"
    revisions.mkdir(parents=True, exist_ok=True)
    content = {
        "format": 1,
        "revision": mesh.revision,
        "taken_up_ms": from_ms - 3_600_000,
        "mesh": mesh_as_json(mesh),
    }
    (revisions / f"{mesh.revision}.json").write_text(json.dumps(content, indent=1))


def _by_state(
    world: MadeWorld, site: str, stage: Stage
) -> Iterator[tuple[int, str, list[MadeRow]]]:
    if site in world.eras:
        yield from rows_by_state(world, site, stage)
        return
    by_state: dict[str, list[MadeRow]] = {}
    for made in world.stage(site, stage):
        by_state.setdefault(world.state_of.get(id(made), world.states[site]), []).append(made)
    for state, rows in by_state.items():
        yield 0, state, rows


def _write_stage(
    ledger: Path,
    site: str,
    stage: Stage,
    state: str,
    rows: list[MadeRow],
    at_rows: int,
    begin: int,
) -> None:
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

    ledger_rows = [made.row for made in rows]
    values = [
        parquet_values(site, state, number, row, fingerprint)
        for number, (row, fingerprint) in enumerate(
            zip(ledger_rows, fingerprints(ledger_rows), strict=True), first
        )
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(values, parquet_schema())
    pq.write_table(table, path, row_group_size=ROWS_OF_A_GROUP, **parquet_options())
