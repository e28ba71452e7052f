"""IDs of traces and spans: the same wherever they are computed, and others for anything else."""

from __future__ import annotations

from itertools import combinations

from relay.tracing.trace_ids import span_id_of, trace_id_of

BATCH = "paris/0102030405060708/orders.0>*/7"


def test_ids_stay_as_they_are_since_two_versions_of_nodes_share_a_trace() -> None:
    trace_id = trace_id_of("acme", BATCH)
    assert f"{trace_id:032x}" == "cf48d3fd4e1a132b061f5564d64b41ea"
    assert f"{span_id_of(trace_id, 'logged', 'lyon'):016x}" == "eea2d7bc4d8dec49"


def test_each_mesh_batch_stage_site_and_peer_has_an_id_of_its_own() -> None:
    traces = [trace_id_of(mesh, batch) for mesh in ("acme", "a") for batch in (BATCH, BATCH + "1")]
    spans = [
        span_id_of(trace, stage, *places)
        for trace in traces
        for stage in ("sent", "logged")
        for places in (("paris",), ("lyon",), ("paris", "lyon"), ("lyon", "paris"), ("parislyon",))
    ]
    assert all(one != other for one, other in combinations([*traces, *spans], 2))
