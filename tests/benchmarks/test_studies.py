"""Rows of Isthmus alone can be run and told of as they are written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.compare.layout import Layout, complete, one_hop, ring
from benchmarks.compare.report import page
from benchmarks.compare.rows import ROWS
from benchmarks.compare.studies import STUDIES, barrier, long_run, many_sites, window
from benchmarks.compare.study import Findings, Setting, Study, StudyBar, run_study
from federation.mesh_file import load_mesh
from federation.planning.disk_need import IDENTITY_BYTES, bytes_each
from isthmus.brokers.installation import RabbitMQInstallation

NOWHERE = RabbitMQInstallation(Path("/nowhere"), "4.0.5")


def a_study(found: Findings) -> Study:
    async def measure(_: Setting) -> Findings:
        return found

    bars = (StudyBar("a key", 3.0), StudyBar("rate", 1.0, at_least=True), StudyBar("not run", 1.0))
    columns = {"us": "us a key", "mb": "MB"}
    return Study("some", "some keys", "keys", (1, 2), measure, columns, ("us",), bars)


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_what_is_drawn_is_a_column_and_each_bar_is_about_something_else(study: Study) -> None:
    assert study.name not in ROWS
    assert study.charted
    assert set(study.charted) <= set(study.columns)
    assert len({bar.what for bar in study.bars}) == len(study.bars)


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_what_runs_quick_is_less_than_what_runs_whole(study: Study) -> None:
    assert sum(study.quick or ()) < sum(study.amounts)


def test_a_study_is_told_with_its_table_and_the_bars_that_it_came_to() -> None:
    found = Findings({"one": {"us": 2.5, "mb": 60.0}, "two": {"us": 3.5}})
    found.reached |= {"a key": 3.5, "rate": 1.0}
    said: list[str] = []
    result = asyncio.run(run_study(a_study(found), NOWHERE, (1, 2), said.append))
    assert [(bar["what"], bar["ok"]) for bar in result["bars"]] == [
        ("a key", False),
        ("rate", True),
    ]
    told = page({"some": {"4.0": result}}, {})
    assert "| [some](#some) | a key | at most 3 | not run | 3.50 (not reached) |" in told
    assert "| case | us a key | MB |" in told
    assert "| one | 2.50 | 60.0 |" in told
    assert "| two | 3.50 |  |" in told


def test_the_barrier_is_measured_at_each_size_and_compared_with_the_least(tmp_path: Path) -> None:
    setting = Setting(NOWHERE, tmp_path, (1024, 2048), lambda _: None)
    found = asyncio.run(barrier.STUDY.measure(setting))
    assert list(found.table) == ["1,024", "2,048"]
    assert all(row.keys() == barrier.STUDY.columns.keys() for row in found.table.values())
    assert found.reached.keys() == {
        "1,024: us a key",
        "2,048: us a key",
        "memory: the most keys over the fewest",
    }
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("layout", [one_hop(), complete(2), complete(16), ring(4), ring(16)])
def test_each_size_of_a_mesh_has_the_same_rate_of_deliveries_in_whole_bursts(
    layout: Layout,
) -> None:
    load = many_sites.load_of(layout, 40.0)
    assert load.count % load.burst == 0
    assert load.rate * layout.remote_deliveries == pytest.approx(many_sites.DELIVERIES_A_S)
    assert load.count / load.rate == pytest.approx(40.0, rel=0.1)


def test_drift_compares_the_last_third_of_the_minutes_with_the_first() -> None:
    columns = ("relay_mb", "relay_files", "broker_files", "p50_ms", "p99_ms")
    table = {str(minute): dict.fromkeys(columns, 10.0) for minute in range(9)}
    table["0"]["relay_mb"] = 1000.0  # an outlier
    for minute in "678":
        table[minute]["relay_mb"] = 15.0
    reached = long_run.drift(table)
    assert reached["the biggest node's memory: the last third over the first"] == 1.5
    assert {bar.what for bar in long_run.STUDY.bars} > reached.keys()


def test_a_log_that_grows_as_the_plan_says_is_none_off(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(
        "{mesh: m, topology: complete, exchanges: [{name: orders, mode: split}],"
        " sites: {site0: {}, site1: {}}}"
    )
    rate, seconds = 8000.0, 60.0
    mesh = load_mesh(file)
    each = bytes_each(mesh, mesh.exchanges["orders"], [frozenset({"site1"})], rate, 1024, 1.0)
    count = int(rate * seconds)
    one = window.Grown(int(count * each), count * IDENTITY_BYTES, 0)
    table = window.compared(mesh, 24, rate, {"site0": one, "site1": one}, seconds)
    for row in table.values():
        assert row["of_log"] == pytest.approx(1.0, rel=1e-3)
        assert row["of_both"] == pytest.approx(1.0, rel=1e-3)
    assert table["site0"]["log_gb"] == pytest.approx(each * rate * 26.4 * 3600 / 1e9, rel=1e-2)
