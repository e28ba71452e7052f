"""`isthmus simulate FILE --fail ...`, as an operator meets it; its figures by plain arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from federation.planning.disk_need import PublishRates, disk_need
from isthmus.cli import app
from tests.federation.meshes import LINE_OF_THREE, mesh_of

LINE = f"{LINE_OF_THREE}outage_window: 3h\n"
RING = """\
mesh: acme
topology: ring
both: true
exchanges: [{name: orders}]
sites: {paris: {}, tokyo: {}, sydney: {}}
"""
RATE = 500
FOR_S = 7200
EACH = 1024 + 160 + 400 / 1.5
"""Bytes: body and what is beside it; a batch's own, shared by 3 ms of such messages."""
LINE_RATE = 12.5e6
ASKED = ("--for", "2h", "--rate", "500")


def run(folder: Path, text: str, *arguments: str) -> Result:
    file = folder / "mesh.yaml"
    file.write_text(text)
    return CliRunner().invoke(app, ["simulate", str(file), *arguments])


def outage_json(folder: Path, text: str, *arguments: str, status: int = 0) -> Any:
    result = run(folder, text, *arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def cut_line(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return outage_json(tmp_path_factory.mktemp("line"), LINE, "--fail", "b-c", *ASKED)


def test_each_side_of_a_cut_line_lags_by_what_the_other_publishes(cut_line: Any) -> None:
    sites, each = cut_line["sites"], RATE * FOR_S
    assert {name: one["behind"] for name, one in sites.items()} == {
        "a": {"c": each},
        "b": {"c": each},
        "c": {"a": each, "b": each},
    }
    assert [one["bytes"] for one in sites.values()] == [
        pytest.approx(origins * each * EACH) for origins in (1, 1, 2)
    ]
    assert {one["oldest_s"] for one in sites.values()} == {FOR_S}
    assert cut_line["lost_messages"] == 0


def test_a_site_catches_up_with_what_its_lines_have_left_over(cut_line: Any) -> None:
    backlog, new = RATE * FOR_S * EACH, RATE * EACH
    assert {name: one["catch_up_s"] for name, one in cut_line["sites"].items()} == {
        # Its line from b brings what b publishes as well.
        "a": pytest.approx(backlog / (LINE_RATE - 2 * new)),
        "b": pytest.approx(backlog / (LINE_RATE - new)),
        "c": pytest.approx(2 * backlog / (LINE_RATE - 2 * new)),
    }


def test_messages_that_wait_beyond_their_deadline_are_late(tmp_path: Path) -> None:
    text = LINE.replace("{name: orders}", "{name: orders, from: [c], deadline: 30m}")
    result = outage_json(tmp_path, text, "--fail", "b-c", *ASKED)
    catch_up_s = result["sites"]["b"]["catch_up_s"]
    # Of all that was published until it had caught up, the first three quarters.
    late = RATE * (FOR_S + catch_up_s) * 0.75
    assert result["sites"]["b"]["late"] == {"orders": pytest.approx(late, abs=1)}
    assert result["sites"]["c"]["late"] == {}


def test_logs_keep_what_plan_says_for_a_window_of_that_length(cut_line: Any) -> None:
    kept_s = FOR_S + 900
    assert cut_line["needed"] == {"outage_window_s": FOR_S, "retention_s": kept_s}
    assert {name: one["keeps_for"] for name, one in cut_line["logs"].items()} == {
        "b": ["b-c"],
        "c": ["c-b"],
    }
    need = disk_need(mesh_of(LINE.replace("3h", "2h")), PublishRates(RATE), 1024)
    for name, one in cut_line["logs"].items():
        assert one["log_bytes"] == round(need[name].log_bytes)
        assert one["log_bytes"] == pytest.approx(3 * RATE * EACH * kept_s + 2 * 64 * 2**20)


def test_where_there_is_a_way_round_nobody_lags(tmp_path: Path) -> None:
    result = outage_json(tmp_path, RING, "--fail", "paris-tokyo", *ASKED)
    assert {one["messages"] for one in result["sites"].values()} == {0}
    assert result["links_away"] == ["paris-tokyo", "tokyo-paris"]
    assert result["enough"]
    # Each site's messages cross to each other one, and no line carries more than all there are.
    assert result["links"]["sydney-tokyo"]["messages_per_s_meanwhile"] == 2 * RATE
    assert result["links"]["paris-tokyo"]["backlog_bytes"] == 0


def test_a_way_round_that_is_too_narrow_has_sites_lag_all_the_same(tmp_path: Path) -> None:
    asked = ("--fail", "paris-tokyo", *ASKED, "--line-rate", "sydney->tokyo=1MB/s")
    result = outage_json(tmp_path, RING, *asked)
    # It would have to carry what paris and sydney publish.
    waits = RATE * FOR_S * (1 - 1e6 / (2 * RATE * EACH))
    assert result["sites"]["tokyo"]["slowed"] == {
        "paris": pytest.approx(waits, abs=1),
        "sydney": pytest.approx(waits, abs=1),
    }
    assert result["sites"]["paris"]["slowed"] == {}
    said = " ".join(run(tmp_path, RING, *asked).stdout.split())
    both = 2 * round(waits)
    assert "sites that lag for want of a way: none" in said
    assert f"tokyo lags by up to {both:,} messages more, behind paris, sydney, before" in said


def test_losses_of_a_short_window_are_exact_to_the_message(tmp_path: Path) -> None:
    short = LINE.replace("3h", "1h")  # kept for 75 min
    result = outage_json(tmp_path, short, "--fail", "b-c", *ASKED, status=1)
    gone = RATE * (FOR_S - 75 * 60)
    assert result["sites"]["c"]["lost"] == {"a": gone, "b": gone}
    assert result["lost_messages"] == 4 * gone
    assert result["gaps"] == [
        {"site": "b", "stage": "link b-c"},
        {"site": "c", "stage": "link c-b"},
    ]


def test_an_outage_within_the_margin_is_not_promised(tmp_path: Path) -> None:
    result = run(tmp_path, LINE, "--fail", "b-c", "--for", "190m", "--rate", "500")
    assert result.exit_code == 1
    assert "within its margin nothing is lost, but not promised" in result.stdout


def test_a_line_that_carries_less_than_what_comes_new_never_catches_up(tmp_path: Path) -> None:
    result = run(tmp_path, LINE, "--fail", "b-c", *ASKED, "--line-rate", "b->c=1MB/s")
    assert result.exit_code == 1
    said = " ".join(result.stdout.split())
    assert "NOT ENOUGH: c would never catch up" in said
    assert "TOO SLOW" in said


def test_a_log_that_may_not_take_so_much_is_not_enough(tmp_path: Path) -> None:
    full = LINE.replace("b: {", "b: {log: {max_bytes: 5GB}, ")
    result = run(tmp_path, full, "--fail", "b-c", *ASKED)
    assert result.exit_code == 1
    assert "it takes nothing more" in result.stdout
    assert "log.max_bytes is too little at b" in " ".join(result.stdout.split())


def test_brokers_of_ones_own_are_not_asked_for_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARIS_PASSWORD", raising=False)
    broker = """{
        broker: "amqps://relay@rabbit.paris.example/vhost", password: "env:PARIS_PASSWORD",
        stream: "rabbitmq-stream+tls://rabbit.paris.example"}"""
    result = run(tmp_path, RING.replace("paris: {}", f"paris: {broker}"), "--fail", "tokyo", *ASKED)
    assert result.exit_code == 0, result.output
    assert "ENOUGH: nothing is lost" in result.stdout
    assert "nothing is published there meanwhile" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (ASKED, "say what fails: --fail LINK or --fail SITE"),
        (("--fail", "b-x", *ASKED), "did you mean"),
        (("--fail", "b-c", "--rate", "500"), "such as --for 2h"),
        (("--fail", "b-c", "--for", "2h"), "such as --rate 500"),
        (("--fail", "b-c", "--for", "2 hours", "--rate", "5"), "did you mean `2h`?"),
        (("--fail", "b-c", "--for", "0s", "--rate", "5"), "is no outage"),
        (("--fail", "b-c", "--for", "2h", "--rate", "0"), "nothing is published"),
        (("--fail", "b-c", *ASKED, "--size", "big"), "is no size"),
        (("--fail", "b-c", *ASKED, "--seed", "3"), "--seed is for meshes that are drawn"),
    ],
)
def test_a_question_that_lacks_something_is_refused_with_what_to_say(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run(tmp_path, LINE, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_mesh_without_exchanges_has_nothing_that_could_lag(tmp_path: Path) -> None:
    without = LINE.replace("exchanges: [{name: orders}]\n", "")
    result = run(tmp_path, without, "--fail", "b-c", *ASKED)
    assert result.exit_code == 2
    assert "the mesh has no exchanges" in result.stderr


def test_without_a_file_there_is_nothing_to_fail() -> None:
    result = CliRunner().invoke(app, ["simulate", "--for", "2h"])
    assert result.exit_code == 2
    assert "--for is about an outage of a mesh of your own: say its FILE first" in result.stderr


def test_a_mesh_too_large_to_run_is_refused(tmp_path: Path) -> None:
    sites = ", ".join(f"s{n}: {{}}" for n in range(201))
    large = f"mesh: acme\ntopology: {{hub: s0}}\nexchanges: [{{name: x}}]\nsites: {{{sites}}}\n"
    result = run(tmp_path, large, "--fail", "s1", *ASKED)
    assert result.exit_code == 2
    assert "201 sites are too many to run in one process" in result.stderr
