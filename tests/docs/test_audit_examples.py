"""The examples around the audit: a timer, a DAG, and receipts that the audit understands."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import aio_pika
import pytest
import typer

from isthmus.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(EXAMPLES / "systemd" / name)
    return found


def options_of_audit() -> set[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    audit = group.commands["audit"]
    assert isinstance(audit, typer.core.TyperGroup)
    return {option for parameter in audit.commands["file"].params for option in parameter.opts}


def test_the_service_calls_the_audit_as_it_is() -> None:
    words = shlex.split(unit("isthmus-audit.service")["Service"]["ExecStart"])
    assert (Path(words[0]).name, words[1], Path(words[2]).suffix) == ("isthmus", "audit", ".yaml")
    assert {word for word in words if word.startswith("--")} <= options_of_audit()


def test_the_timer_starts_its_service_every_night() -> None:
    timer = unit("isthmus-audit.timer")
    assert timer["Timer"]["OnCalendar"] == "*-*-* 02:00:00 UTC"
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_systemd_takes_both(tmp_path: Path) -> None:
    """Where systemd is; elsewhere both were read above."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return
    for name in ("isthmus-audit.service", "isthmus-audit.timer"):
        text = (EXAMPLES / "systemd" / name).read_text()
        # Only what is installed can be verified.
        text = text.replace("/opt/isthmus/bin/isthmus", "/bin/true")
        (tmp_path / name).write_text(text)
    files = [str(file) for file in sorted(tmp_path.iterdir())]
    done = subprocess.run([verify, "verify", *files], capture_output=True, text=True, check=False)
    assert "Unknown" not in done.stderr
    assert "Failed to parse" not in done.stderr


def test_the_dag_calls_the_audit_as_it_is() -> None:
    text = (EXAMPLES / "airflow" / "isthmus_audit.py").read_text()
    words = {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    used = {word for word in words if word.startswith("--")}
    assert used
    assert used <= options_of_audit()


@pytest.fixture
def receipts() -> ModuleType:
    path = EXAMPLES / "receipts" / "receipts.py"
    spec = importlib.util.spec_from_file_location("receipts_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


class Exchange:
    """A broker's, as the helper uses it."""

    name = "orders"

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.published: list[tuple[aio_pika.Message, str]] = []

    async def publish(self, message: aio_pika.Message, routing_key: str) -> None:
        if self.fails:
            raise ConnectionError("gone")
        self.published.append((message, routing_key))


@pytest.mark.parametrize("fsync", [False, True])
async def test_what_is_published_has_a_receipt_before_and_after(
    tmp_path: Path, receipts: ModuleType, fsync: bool
) -> None:
    kept = receipts.Receipts(tmp_path / "r", "paris", fsync=fsync)
    exchange = Exchange()
    message_id = await receipts.publish(exchange, aio_pika.Message(b"1"), "new", kept)
    kept.close()
    assert exchange.published[0][0].message_id == message_id
    told = lines(tmp_path / "r")
    assert [one["confirmed"] for one in told] == [False, True]
    assert {one["message_id"] for one in told} == {message_id}
    assert {(one["site"], one["role"], one["exchange"]) for one in told} == {
        ("paris", "published", "orders")
    }


async def test_what_was_not_confirmed_is_not_said_to_be(
    tmp_path: Path, receipts: ModuleType
) -> None:
    kept = receipts.Receipts(tmp_path / "r", "paris")
    with pytest.raises(ConnectionError):
        await receipts.publish(Exchange(fails=True), aio_pika.Message(b"1"), "new", kept)
    kept.close()
    assert [one["confirmed"] for one in lines(tmp_path / "r")] == [False]


@pytest.mark.parametrize(
    ("redelivered", "headers", "said"),
    [
        (False, {}, (False, "orders.in")),
        (True, {}, (True, "orders.in")),
        (False, {"x-mesh-redelivered": True, "x-mesh-exchange": "orders"}, (True, "orders")),
    ],
)
def test_what_is_consumed_says_whether_it_came_again(
    tmp_path: Path,
    receipts: ModuleType,
    redelivered: bool,
    headers: dict[str, Any],
    said: tuple[bool, str],
) -> None:
    kept = receipts.Receipts(tmp_path / "r", "tokyo")
    message = SimpleNamespace(
        headers=headers, exchange="orders.in", message_id="m1", redelivered=redelivered
    )
    receipts.consumed(message, kept, queue="work")
    kept.close()
    (told,) = lines(tmp_path / "r")
    assert (told["redelivered"], told["exchange"]) == said
    assert (told["role"], told["queue"], told["message_id"]) == ("consumed", "work", "m1")
