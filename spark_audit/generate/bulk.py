"""Make ledgers of a faultless day fast, to measure what so many messages cost.

Full batches, evenly spread over the time, between sites all linked with each other. Whole columns
are made at a time, without a Python object per message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from federation.mesh import Mesh
from relay.ledger.columns import ROWS_OF_A_GROUP, parquet_options, parquet_schema
from relay.ledger.fingerprint import fingerprints
from relay.ledger.rows import LedgerRow, Outcome, Stage
from spark_audit.generate.files import write_mesh, write_revision
from spark_audit.period import Period

ENTRIES = 256
"""Messages of a full batch."""
ROWS_OF_A_FILE = 4096
"""Rows of a file, as nodes write it."""
_AT_ONCE = 1024
"""Batches of each site made at a time."""
_HASHED_AT_ONCE = 64
"""Batches hashed at a time, which fit into a processor's cache."""
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass(slots=True)
class _File:
    """Rows of one stage of a site, cut into files."""

    folder: Path
    site: str
    state: str
    stage: Stage
    written: int = 0
    waiting: list[Any] = field(default_factory=list)
    rows: int = 0

    def add(self, columns: Mapping[str, Any], count: int) -> None:
        """Append rows in order of their numbers; missing columns are null, or empty."""
        import pyarrow as pa

        known = {
            "site": _same(self.site, count),
            "state": _same(self.state, count),
            "stage": _same(self.stage.name.lower(), count),
            "number": pa.array(range(self.rows, self.rows + count), pa.int64()),
            "lane": pa.array([0] * count, pa.int32()),
            "first_entry": pa.array([0] * count, pa.int32()),
            "count": pa.array([0] * count, pa.int32()),
            "destinations": pa.array([[]] * count, pa.list_(pa.string())),
            "path": pa.array([[]] * count, pa.list_(pa.string())),
            **columns,
        }
        schema = parquet_schema()
        arrays = [
            known[one.name].cast(one.type) if one.name in known else pa.nulls(count, one.type)
            for one in schema
        ]
        self.waiting.append(pa.Table.from_arrays(arrays, schema=schema))
        self.rows += count

    def write_full(self) -> None:
        while self.rows - self.written >= ROWS_OF_A_FILE:
            self.write(ROWS_OF_A_FILE)

    def write(self, most: int) -> None:
        """Write the next file, of `most` rows at most."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.concat_tables(self.waiting)
        self.waiting = [table.slice(most)] if table.num_rows > most else []
        table = table.slice(0, most)
        first, last = self.written, self.written + table.num_rows - 1
        self.written = last + 1
        at_s = table["recorded"][0].cast("int64").as_py() / 1000
        folder = self.folder / f"date={datetime.fromtimestamp(at_s, UTC).date().isoformat()}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.stage.name.lower()}-{self.state[:8]}-{first:012}-{last:012}.parquet"
        pq.write_table(
            table,
            folder / name,
            row_group_size=ROWS_OF_A_GROUP,
            **parquet_options(),
        )


@dataclass(frozen=True, slots=True)
class _Batches:
    """Batches of every site as columns in the order (number, origin). The packed columns are
    pyarrow arrays already, shared by all sites.
    """

    numbers: Any
    origins: Any
    first_ms: Any
    identities: Any
    contents: Any
    sums: Mapping[str, Any]


def generate_bulk(out: Path, sites: int, messages: int, period: Period, *, small: bool) -> int:
    """Write OUT/mesh.yaml and OUT/sites/SITE/ledger, and return the number of messages. `small`:
    True for compressible identities, so that a large day fits on a disk.
    """
    import numpy as np

    _, mesh = write_mesh(out, sites)
    files = {
        (site, stage): _File(out / "sites" / site / "ledger", site, f"{nth:08x}{nth:024x}", stage)
        for nth, site in enumerate(mesh.sites, 1)
        for stage in Stage
    }
    of_each = max(1, messages // sites // ENTRIES)
    for file in files.values():
        file.add(_idle(period.from_ms - 1000), 1)
    step_ms = (period.to_ms - period.from_ms) / of_each
    with ThreadPoolExecutor() as pool:  # what writes a file holds no lock of Python's
        for begin in range(0, of_each, _AT_ONCE):
            numbers = np.arange(begin, min(of_each, begin + _AT_ONCE))
            made = _batches(np, numbers, sites, period.from_ms, step_ms, small=small)
            for nth, site in enumerate(mesh.sites):
                _add_batches(np, files, mesh, site, nth, made)
            list(pool.map(_File.write_full, files.values()))
    for (site, stage), file in files.items():
        _add_end(file, mesh, site, stage, of_each - 1, period.to_ms + 1000)
        while file.written < file.rows:
            file.write(ROWS_OF_A_FILE)
    for site in mesh.sites:
        write_revision(mesh, out / "sites" / site / "ledger", period.from_ms)
    return of_each * sites * ENTRIES


def _batches(
    np: Any, numbers: Any, sites: int, from_ms: int, step_ms: float, *, small: bool
) -> _Batches:
    count = len(numbers) * sites
    origins = np.tile(np.arange(sites), len(numbers))
    number = np.repeat(numbers, sites)
    # A number for each batch, another for each message within a batch.
    batch = (number * sites + origins).astype(np.uint64)[:, None]
    entry = np.arange(ENTRIES, dtype=np.uint64)[None, :]
    identities = np.empty((count, ENTRIES, 2), ">u8")
    identities[:, :, 0] = batch if small else _mixed(np, batch * np.uint64(ENTRIES) + entry)
    identities[:, :, 1] = entry if small else _mixed(np, identities[:, :, 0].astype(np.uint64))
    contents = np.empty((count, ENTRIES), ">u8")
    contents[:] = (entry if small else identities[:, :, 1].astype(np.uint64)) ^ np.uint64(1 << 40)
    sums_of_rows = [
        one
        for begin in range(0, count, _HASHED_AT_ONCE)
        for one in fingerprints(
            [
                LedgerRow(
                    Stage.DELIVERED,
                    0,
                    count=ENTRIES,
                    identities=identities[nth].tobytes(),
                    contents=contents[nth].tobytes(),
                    outcomes=bytes([Outcome.DELIVERED]) * ENTRIES,
                )
                for nth in range(begin, min(count, begin + _HASHED_AT_ONCE))
            ]
        )
        if one is not None
    ]
    sums = {
        "delivered_count": np.array([one.messages for one in sums_of_rows], np.int32),
        "identity_sum_1": np.array([one.identity_1 for one in sums_of_rows], np.int64),
        "identity_sum_2": np.array([one.identity_2 for one in sums_of_rows], np.int64),
        "content_sum": np.array([one.content for one in sums_of_rows], np.int64),
    }
    first_ms = (from_ms + number * step_ms + origins * (step_ms / sites)).astype(np.int64)
    return _Batches(number, origins, first_ms, _binary(np, identities), _binary(np, contents), sums)


def _mixed(np: Any, x: Any) -> Any:
    for by, factor in zip((30, 27), _MIX, strict=True):
        x = (x ^ (x >> np.uint64(by))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def _add_batches(
    np: Any,
    files: Mapping[tuple[str, Stage], _File],
    mesh: Mesh,
    site: str,
    nth: int,
    made: _Batches,
) -> None:
    """Append the rows that a site's stages write of these batches."""
    clusters = [one.cluster_id for one in mesh.sites.values()]
    own = made.origins == nth
    away = ~own
    none = np.full(len(made.numbers), -1)
    paths = [
        [origin, clusters[nth]] if origin != clusters[nth] else [origin] for origin in clusters
    ]
    packed = _header(np, mesh, clusters, made, own, none, 3) | _messages(
        np, made, own, Outcome.SENT
    )
    for name in ("contents", "delivered", "content_sum"):
        del packed[name]
    files[site, Stage.PACKED].add(packed, int(own.sum()))
    everything = np.ones(len(own), bool)
    delivered = _header(np, mesh, clusters, made, everything, none, 60, paths)
    outcomes = np.where(own, int(Outcome.OWN), int(Outcome.DELIVERED))
    delivered |= _messages(np, made, everything, outcomes)
    files[site, Stage.DELIVERED].add(delivered, len(own))
    files[site, Stage.LINKED_IN].add(
        _header(np, mesh, clusters, made, away, made.origins, 50, paths), int(away.sum())
    )
    for neighbour in range(len(clusters)):
        if neighbour != nth:
            to = np.full(len(own), neighbour)
            files[site, Stage.LINKED_OUT].add(
                _header(np, mesh, clusters, made, own, to, 55), int(own.sum())
            )


def _header(
    np: Any,
    mesh: Mesh,
    clusters: Sequence[str],
    made: _Batches,
    which: Any,
    neighbours: Any,
    after_ms: int,
    paths: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:
    """Return the columns common to all stages, of the batches `which`."""
    import pyarrow as pa

    origins, first_ms = made.origins[which], made.first_ms[which]
    count = len(origins)
    time = pa.timestamp("ms", tz="UTC")
    names = [*mesh.sites]
    incarnations = pa.array([bytes([nth + 1]) * 8 for nth in range(len(clusters))], pa.binary())
    ways = pa.array(paths or [[one] for one in clusters], pa.list_(pa.string()))
    neighbour = neighbours[which]
    return {
        "event": _same("batch", count),
        "kind": _same("messages", count),
        "origin": pa.array(clusters).take(pa.array(origins)),
        "incarnation": incarnations.take(pa.array(origins)),
        "exchange": _same("orders", count),
        "sequence": pa.array(made.numbers[which]),
        "incarnation_sequence": pa.array(made.numbers[which] + 1),
        "revision": _same(mesh.revision, count),
        "path": ways.take(pa.array(origins)),
        "neighbour": pa.array(names).take(pa.array(neighbour, mask=neighbour < 0)),
        "recorded": pa.array(first_ms + after_ms, time),
        "first_published": pa.array(first_ms, time),
        "last_published": pa.array(first_ms, time),
        "count": pa.array(np.full(count, ENTRIES, np.int32)),
    }


def _messages(np: Any, made: _Batches, which: Any, outcomes: Any) -> dict[str, Any]:
    import pyarrow as pa

    count = int(which.sum())
    outcome = np.broadcast_to(np.asarray(outcomes, np.uint8), len(which))[which]
    zeros = _binary(np, np.zeros((count, 4 * ENTRIES), np.uint8))
    packed = {"identities": made.identities, "contents": made.contents}
    if count < len(which):
        packed = {name: column.filter(pa.array(which)) for name, column in packed.items()}
    return {
        **packed,
        "outcomes": _binary(np, np.repeat(outcome[:, None], ENTRIES, axis=1)),
        "published": zeros,
        "delivered": zeros,
        **{name: pa.array(values[which]) for name, values in made.sums.items()},
    }


def _binary(np: Any, rows: Any) -> Any:
    """Make a binary column of a table, each row's bytes joined."""
    import pyarrow as pa

    data = np.ascontiguousarray(rows)
    count, size = len(data), data.nbytes // len(data)
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _same(value: str, count: int) -> Any:
    import pyarrow as pa

    return pa.repeat(pa.scalar(value, pa.string()), count)


def _idle(at_ms: int) -> dict[str, Any]:
    import pyarrow as pa

    return {
        "event": _same("idle", 1),
        "recorded": pa.array([at_ms], pa.timestamp("ms", tz="UTC")),
    }


def _add_end(file: _File, mesh: Mesh, site: str, stage: Stage, last: int, at_ms: int) -> None:
    """Append rows by which the site is done with everything and goes on."""
    import pyarrow as pa

    for nth, origin in enumerate(mesh.sites.values()):
        if stage is Stage.DELIVERED or (stage is Stage.PACKED and origin.name == site):
            through = {
                **_idle(at_ms),
                "event": _same("through", 1),
                "origin": _same(origin.cluster_id, 1),
                "incarnation": pa.array([bytes([nth + 1]) * 8], pa.binary()),
                "incarnation_sequence": pa.array([last + 1], pa.int64()),
            }
            if stage is Stage.DELIVERED:
                through["exchange"] = _same("orders", 1)
            else:
                through["through"] = pa.array([at_ms], pa.timestamp("ms", tz="UTC"))
            file.add(through, 1)
    file.add(_idle(at_ms), 1)
