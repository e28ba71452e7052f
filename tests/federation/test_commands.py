"""`isthmus validate` and `isthmus apply`, as an operator meets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from federation.brokers.apply_report import Item, ItemOutcome, SiteReport
from isthmus.commands.apply import apply
from isthmus.commands.mesh_file import validate
from isthmus.site_apply import lines
from tests.federation.live_site import mesh_file_on
from tests.federation.meshes import TRIANGLE, mesh_of
from tests.live_brokers import Vhost


def run(command: Callable[..., None], *arguments: object) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mesh.yaml"
    path.write_text(TRIANGLE)
    return path


def test_validate_says_what_a_good_file_comes_to(file: Path) -> None:
    result = run(validate, file)
    assert result.exit_code == 0
    revision = mesh_of(TRIANGLE).revision
    assert result.stdout == (
        f"{file}: ok: mesh acme, 3 sites, 6 links (ring rule), 1 exchange, outage window 3d, "
        f"revision {revision}\n"
    )
    assert result.stderr == ""


def test_validate_tells_every_mistake_and_ends_with_2(file: Path) -> None:
    file.write_text(TRIANGLE.replace("ring", "rng").replace("keys", "kes"))
    result = run(validate, file)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{file}:2:11: `rng` is not known here; did you mean `ring`?",
        f"{file}:5:20: unknown key `kes`; did you mean `keys`?",
    ]


def test_validate_warns_and_still_ends_with_0(file: Path) -> None:
    file.write_text(
        TRIANGLE.replace("tokyo: {}", "tokyo: {broker: 'amqp://r@h.example', password: hush}")
    )
    result = run(validate, file)
    assert result.exit_code == 0
    assert "warning: this password is in clear" in result.stderr
    assert "hush" not in result.stderr


def test_apply_to_a_file_with_mistakes_ends_with_2(file: Path, tmp_path: Path) -> None:
    file.write_text("mesh: 1\n")
    result = run(apply, file, "--state", tmp_path / "state")
    assert result.exit_code == 2
    assert not (tmp_path / "state").exists()


def test_apply_to_a_site_that_is_not_there_ends_with_2(file: Path, tmp_path: Path) -> None:
    result = run(apply, file, "--site", "rome", "--state", tmp_path / "state")
    assert result.exit_code == 2
    assert "there is no site 'rome'; the mesh has paris, tokyo, sydney" in result.stderr


def test_apply_before_up_says_so_for_each_site_and_ends_with_1(file: Path, tmp_path: Path) -> None:
    result = run(apply, file, "--state", tmp_path / "state")
    assert result.exit_code == 1
    assert result.stdout.count("run `isthmus up` first") == 3


def test_apply_tells_a_damaged_state_in_one_line(file: Path, tmp_path: Path) -> None:
    (tmp_path / "brokers.json").write_text("{")
    result = run(apply, file, "--state", tmp_path)
    assert result.exit_code == 1
    assert "brokers.json: damaged" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_report_shows_what_is_worth_saying_and_how_to_mend_it() -> None:
    report = SiteReport(
        "paris",
        (
            Item("queue", "a", ItemOutcome.THERE),
            Item("queue", "b", ItemOutcome.CREATED),
            Item("queue", "c", ItemOutcome.DIFFERS, "has other arguments", "delete it"),
        ),
    )
    assert lines(report) == [
        "paris: 1 changed, 1 already there, 1 AT FAULT",
        "  created       queue    b",
        "  differs       queue    c: has other arguments",
        "                         -> delete it",
    ]
    assert len(lines(report, everything=True)) == 5


async def test_apply_of_one_site_twice_changes_nothing_the_second_time(
    vhost: Vhost, tmp_path: Path
) -> None:
    text = TRIANGLE.replace("acme", "MESH")
    file, state = await mesh_file_on(vhost, "paris", text, tmp_path)

    def applied() -> list[str]:
        result = run(apply, file, "--site", "paris", "--state", state, "--json")
        assert result.exit_code == 0, result.output
        said = json.loads(result.stdout)
        assert said["revision"] == mesh_of(file.read_text()).revision
        return [item["outcome"] for item in said["sites"]["paris"]]

    # In a thread: the command runs an event loop of its own.
    first = await asyncio.to_thread(applied)
    assert "created" in first
    assert set(await asyncio.to_thread(applied)) == {"already there"}
