"""`isthmus health` says whether the nodes of a state folder answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.options import EXIT_FAULT
from relay.node.site_folder import ANNOUNCED, node_folder, site_folder


class Node(ThreadingHTTPServer):
    """Admin port of a node that answers with one status."""

    def __init__(self, status: HTTPStatus) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/health" else HTTPStatus.NOT_FOUND)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Answer)


@pytest.fixture
def nodes() -> Iterator[dict[HTTPStatus, int]]:
    """Ports of two nodes, by the status that each answers with."""
    servers = {status: Node(status) for status in (HTTPStatus.OK, HTTPStatus.INTERNAL_SERVER_ERROR)}
    for server in servers.values():
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {status: server.server_address[1] for status, server in servers.items()}
    for server in servers.values():
        server.shutdown()
        server.server_close()


def announce(state: Path, site: str, port: int, node: str = "") -> None:
    folder = node_folder(state, site, node) if node else site_folder(state, site)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ANNOUNCED).write_text(json.dumps({"admin_port": port, "pid": 1}))
    (folder / "admin.token").write_text("token")


def health(state: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["health", "--state", str(state), *words])


def test_a_node_that_answers_is_in_health(tmp_path: Path, nodes: dict[HTTPStatus, int]) -> None:
    announce(tmp_path, "paris", nodes[HTTPStatus.OK])
    result = health(tmp_path)
    assert (result.exit_code, result.stdout) == (0, "paris: answers\n")
    assert json.loads(health(tmp_path, "--json").stdout) == {"paris": {"problem": None}}


def test_one_node_of_two_that_fails_is_named(tmp_path: Path, nodes: dict[HTTPStatus, int]) -> None:
    announce(tmp_path, "paris", nodes[HTTPStatus.OK])
    announce(tmp_path, "tokyo", nodes[HTTPStatus.INTERNAL_SERVER_ERROR])
    result = health(tmp_path)
    assert result.exit_code == EXIT_FAULT
    assert result.stderr == "tokyo: its node answers with status 500\n"


def test_a_node_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    gone = Node(HTTPStatus.OK)
    gone.server_close()
    announce(tmp_path, "paris", gone.server_address[1])
    result = health(tmp_path)
    assert result.exit_code == EXIT_FAULT
    assert "paris: its node does not answer: " in result.stderr


def test_a_folder_where_no_node_has_started_is_not_in_health(tmp_path: Path) -> None:
    assert "no node has started" in health(tmp_path).stderr
    site_folder(tmp_path, "paris").mkdir(parents=True)
    result = health(tmp_path)
    assert result.exit_code == EXIT_FAULT
    assert "paris: its node is not started" in result.stderr


def test_garbage_where_a_node_announces_itself_is_no_node(tmp_path: Path) -> None:
    announce(tmp_path, "paris", 1)
    (site_folder(tmp_path, "paris") / ANNOUNCED).write_bytes(b"\xff{")
    assert "paris: its node is not started" in health(tmp_path).stderr


def test_each_of_several_nodes_of_a_site_is_asked(
    tmp_path: Path, nodes: dict[HTTPStatus, int]
) -> None:
    announce(tmp_path, "paris", nodes[HTTPStatus.OK], "a")
    announce(tmp_path, "paris", nodes[HTTPStatus.INTERNAL_SERVER_ERROR], "b")
    result = health(tmp_path)
    assert result.exit_code == EXIT_FAULT
    assert result.stdout == "paris/a: answers\n"
    assert result.stderr == "paris/b: its node answers with status 500\n"
