"""I6 on real brokers: what a site's ledger files tell, against what was published."""

from __future__ import annotations

import itertools
from typing import Any

from relay.ledger.rows import Event, LedgerRow, Stage
from simulation.invariants import check_ledger
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load, home


def check_rows(mesh: LiveMesh, traffic: Load, site: str) -> None:
    """Raise unless the site's files tell of everything once. Its node has ended in order."""
    rows: list[LedgerRow] = []
    slots = range(mesh.mesh.sites[site].slots.count)
    for stage, slot in itertools.product(Stage, slots):
        told = mesh.ledger(site, stage.name.lower(), slot)
        numbers = [row["number"] for row in told]
        assert sorted(numbers) == list(range(len(numbers))), f"{stage.name} rows of {site}"
        rows += (as_row(stage, row) for row in told if row["event"] == "batch")
    brought = dict.fromkeys((mesh.cluster(one) for one in mesh.mesh.sites), 0)
    surely = dict(brought)
    for stream in traffic.streams:
        source = stream.source
        surely[home(source.origin)] += len(source.confirmed)
        brought[home(source.origin)] += len(source.confirmed) + len(source.indeterminate)
    check_ledger(site, mesh.cluster(site), rows, brought, surely)


def as_row(stage: Stage, row: dict[str, Any]) -> LedgerRow:
    return LedgerRow(
        stage,
        0,
        Event.BATCH,
        origin=row["origin"],
        exchange=row["exchange"],
        identities=row["identities"] or b"",
        outcomes=row["outcomes"] or b"",
    )
