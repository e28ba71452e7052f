"""Who may import whom among the packages: the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import networkx as nx
import pytest

TOP = Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    "wan_proxy": set[str](),
    "federation": set[str](),
    "dedup": set[str](),
    "relay": {"federation", "dedup"},
    "spark_audit": {"federation", "relay"},
    "simulation": {"federation", "dedup", "relay"},
    "isthmus": {"federation", "dedup", "relay", "spark_audit", "simulation", "wan_proxy"},
}
SPARK_AUDIT_SEES_OF_RELAY = {
    "relay.batches.time_offsets",
    "relay.ledger.rows",
    "relay.ledger.columns",
    "relay.ledger.fingerprint",
}
FLOORS: dict[str, tuple[str, ...]] = {
    "federation": (
        "mesh_diff",
        "group_key | mesh_file | planning",
        "brokers",
        "certificate_files | destinations | mesh_json | multicast | names | reachability",
        "mesh",
        "partitions",
        "durable_file | lanes | signing_keys | slots",
        "wording",
    ),
    "federation/mesh_file": (
        "reading | reference",
        "resolution",
        "rules",
        "topologies",
        "key_errors",
        "problem",
        "gathering",
        "templates",
        "tree",
        "keys",
        "quantities",
    ),
    "relay": (
        "cluster",
        "reslot",
        "node",
        "admin",
        "operator",
        "packing",
        "group",
        "delivery | links",
        "content | lease",
        "log",
        "delivered_files | ledger_export",
        "ledger_proof",
        "state",
        "ledger",
        "tracing",
        "batches",
        "bulk_amqp",
        "core | crash_points | delay_histogram | retry | ticks | waiters",
    ),
    "relay/admin": (
        "admin",
        "operator_routes | slot_routes",
        "access | metrics",
    ),
    "relay/admin/metrics": (
        "exposition",
        "old_names | page | sections",
        "catalogue",
        "content_metrics | link_metrics | site_metrics",
        "definition",
    ),
    "relay/tracing": (
        "switch",
        "otlp",
        "traced_batches",
        "batch_trace | message_context | trace_ids",
    ),
    "relay/log": (
        "writer",
        "follower",
        "check | open_gap",
        "flights | reader",
        "hot_tail",
        "run",
        "knowledge",
        "snapshot",
        "recent_names",
        "memory_log | rabbit | scans",
        "site_log",
    ),
    "isthmus": (
        "__main__ | in_turn | lossy_nodes | spark_submit",
        "cli",
        "command_line",
        "commands",
        "hold_orders | doctor | bench | demo | reslot_sites | page",
        "status | outage | repair",
        "plan | up",
        "cluster_parts",
        "brokers | departures | load | node_client | site_apply",
        "group_hearing | known | processes",
        "clocks | display | log_events | lost_messages | options",
        "completion",
    ),
    "spark_audit": (
        "nightly | trace",
        "job",
        "nightly_run | receipts",
        "report",
        "compare | ledger_search",
        "judge",
        "ledgers",
        "frames | generate | session",
        "level | period",
    ),
}
"""Folders and loose files of a package, or of a folder within it, from the top down: each imports
from those below it and from itself. What stands beside another on one floor does not know it.
"""
CIRCLES = {
    # A channel is a part of its connection, and neither does anything without the other.
    frozenset({"relay.bulk_amqp.channel", "relay.bulk_amqp.connection"}),
}
"""Files that import each other, in a circle, and why they may."""
ONLY_IMPORTERS = {
    "rstream": {"relay/log/rabbit/stream_connection.py"},
    "rocksdict": {"dedup/rocksdb_store.py"},
    "cassandra": {"dedup/journal/cassandra_journal.py", "dedup/journal/cassandra_session.py"},
    "kazoo": {"relay/cluster/zookeeper.py"},
    "opentelemetry": {"relay/tracing/otlp.py"},
    "prometheus_client": {
        *("relay/admin/metrics/exposition.py", "spark_audit/report/textfile.py"),
    },
}
"""A vendor's library behind a seam has one importer."""


@functools.cache
def modules_of(file: Path) -> tuple[str, ...]:
    """Every module that a file imports, wherever in it."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: a relative import"
            assert node.module is not None
            found.append(node.module)
    return tuple(found)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_stands_below_it(package: str) -> None:
    for file in sorted((TOP / package).rglob("*.py")):
        for module in modules_of(file):
            top = module.partition(".")[0]
            if top in MAY_IMPORT and top != package:
                assert top in MAY_IMPORT[package], f"{file} imports {module}"
            assert top not in {"tests", "benchmarks", "examples"}, f"{file} imports {module}"
            if package == "spark_audit" and top == "relay":
                assert module in SPARK_AUDIT_SEES_OF_RELAY, f"{file} imports {module}"


@pytest.mark.parametrize("library", ONLY_IMPORTERS)
def test_a_library_behind_a_seam_has_one_importer(library: str) -> None:
    importers = {
        str(file.relative_to(TOP))
        for package in MAY_IMPORT
        for file in (TOP / package).rglob("*.py")
        if library in {module.partition(".")[0] for module in modules_of(file)}
    }
    assert importers == ONLY_IMPORTERS[library]


def test_every_package_has_its_arrows_here() -> None:
    packages = {file.parent.name for file in TOP.glob("*/__init__.py")}
    assert packages - {"tests", "benchmarks", "examples"} == set(MAY_IMPORT)


@functools.cache
def every_module() -> dict[str, Path]:
    """Files of all packages by the module's dotted name."""
    found = {}
    for package in MAY_IMPORT:
        for file in (TOP / package).rglob("*.py"):
            parts = file.relative_to(TOP).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


@functools.cache
def imports(module: str) -> set[str]:
    """Modules of ours that this one imports: of `from a import b` a module b, else a."""
    modules, found = every_module(), set()
    for node in ast.walk(ast.parse(modules[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in modules else node.module)
    return {name for name in found if name in modules and name != module}


@pytest.mark.parametrize("package", FLOORS)
def test_a_folder_imports_only_what_stands_on_the_floors_below_it(package: str) -> None:
    floors = [floor.split(" | ") for floor in FLOORS[package]]
    height = {name: -number for number, floor in enumerate(floors) for name in floor}
    modules = every_module()
    prefix = package.replace("/", ".") + "."
    upward = set()
    for module in modules:
        if not module.startswith(prefix):
            continue
        folder = module.removeprefix(prefix).split(".")[0]
        for other in imports(module):
            within = other.startswith(prefix)
            there = other.removeprefix(prefix).split(".")[0] if within else folder
            if there != folder and height[there] >= height[folder]:
                upward.add(f"{module} imports {other}")
    assert not upward


@pytest.mark.parametrize("package", FLOORS)
def test_every_folder_has_its_floor(package: str) -> None:
    top = TOP / package
    names = {path.stem for path in top.iterdir() if path.suffix == ".py"}
    names |= {path.parent.name for path in top.glob("*/__init__.py")}
    floors = {name for floor in FLOORS[package] for name in floor.split(" | ")}
    assert names - {"__init__"} == floors


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = every_module()
    graph = nx.DiGraph((one, other) for one in modules for other in imports(one))
    circles = {frozenset(some) for some in nx.strongly_connected_components(graph) if len(some) > 1}
    assert circles == CIRCLES
