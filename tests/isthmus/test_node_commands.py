"""Commands for sites of several nodes that are given what does not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.options import EXIT_FAULT, EXIT_STOPPED, EXIT_USAGE

MESH = """\
mesh: acme
topology: complete
exchanges: [{name: orders}]
sites:
  paris: {nodes: [paris-a, paris-b], cluster: {zookeeper: z:1, cassandra: {hosts: c:1}}}
  tokyo: {}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mesh.yaml"
    file.write_text(MESH)
    return file


def run(file: Path, *words: str) -> tuple[int, str]:
    command, *options = words
    result = CliRunner().invoke(
        app, [command, str(file), *options, "--state", str(file.parent / "state")]
    )
    return result.exit_code, result.output


def test_a_site_with_one_node_has_no_name_for_it(file: Path) -> None:
    code, text = run(file, "relay", "--site", "tokyo", "--node", "tokyo-a")
    assert code == EXIT_USAGE
    assert "tokyo has one node, without a name: it has no `cluster:`" in text


def test_a_site_without_a_cluster_has_nowhere_to_move_its_state(file: Path) -> None:
    result = CliRunner().invoke(app, ["cluster", "begin", str(file), "--site", "tokyo"])
    assert result.exit_code == EXIT_USAGE
    assert "tokyo has no `cluster:` in" in result.output


def test_a_state_that_has_not_moved_into_the_cluster_keeps_its_nodes_from_starting(
    file: Path,
) -> None:
    folder = file.parent / "state" / "sites" / "paris"
    (folder / "state").mkdir(parents=True)
    code, text = run(file, "relay", "--site", "paris", "--node", "paris-a")
    assert code == EXIT_STOPPED
    assert "`isthmus cluster begin FILE --site paris` moves it into the cluster" in text


@pytest.mark.parametrize("command", ["relay", "recover"])
def test_a_state_that_has_moved_into_a_cluster_is_not_lost(command: str, file: Path) -> None:
    folder = file.parent / "state" / "sites" / "tokyo"
    folder.mkdir(parents=True)
    (folder / "moved.json").write_text("{}")
    code, text = run(file, command, "--site", "tokyo")
    assert code in (EXIT_STOPPED, EXIT_FAULT)
    assert "`isthmus cluster end` brings it back" in text


def test_a_node_that_the_file_does_not_name_is_refused(file: Path) -> None:
    code, text = run(file, "relay", "--site", "paris", "--node", "paris-c")
    assert code == EXIT_USAGE
    assert "paris has no node 'paris-c': `nodes:` has paris-a, paris-b" in text


WITHOUT_CLIENTS = """\
import sys
sys.modules |= {"kazoo": None, "cassandra": None}
from isthmus.cli import app
app()
"""


def test_what_to_install_is_said(file: Path) -> None:
    # In a process of its own, of which the command changes the logging and the memory.
    words = ("relay", str(file), "--site", "paris", "--node", "paris-a")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLIENTS, *words, "--state", str(file.parent / "state")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == EXIT_FAULT
    assert "pip install 'isthmus[cluster]'" in done.stderr


def test_a_site_without_a_cluster_imports_neither_client(file: Path) -> None:
    nobody = '{broker: "amqp://user:password@127.0.0.1:1/"}'
    file.write_text(MESH.replace("tokyo: {}", f"tokyo: {nobody}"))
    words = ("relay", str(file), "--site", "tokyo", "--state", str(file.parent / "state"))
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_CLIENTS, *words], stderr=subprocess.PIPE, text=True
    ) as node:
        assert node.stderr is not None
        said = ""
        # Its state is open then, and it begins to work.
        while "no connection to 127.0.0.1" not in said and (line := node.stderr.readline()):
            said += line
        node.terminate()
    assert node.returncode == 0, said


def test_a_state_that_has_not_moved_into_the_cluster_is_not_lost(file: Path) -> None:
    (file.parent / "state" / "sites" / "paris" / "state").mkdir(parents=True)
    code, text = run(file, "recover", "--site", "paris")
    assert code == EXIT_FAULT
    assert "in the folder of its one node: `isthmus cluster begin` moves it" in text
