"""Log of the page's orders: who gave which, when, and how the order ended.

STATE/page-orders.jsonl has two lines an order, the first on the disk before the order begins:

    {"id", "at", "who", "order", "command"}        times in UTC
    {"id", "at", "status", "text"}                 exit status of the command, and what it said
"""

from __future__ import annotations

import json
import os
import secrets
from collections import OrderedDict
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus.up.supervised import rotate

ORDERS_FILE = "page-orders.jsonl"
KEPT = 200
"""Orders that the page shows."""
READ_BYTES = 1 << 20
LIMIT_BYTES = 5 << 20
OLD_FILES = 2
MOST_TEXT = 4000
RUNNING = "running"
DONE = "done"
FAILED = "failed"
UNKNOWN = "unknown"
"""Outcome of an order whose command was ended, by the page or with the page."""


@dataclass(frozen=True, slots=True)
class LoggedOrder:
    """An order and its outcome so far."""

    id: str
    at: str
    who: str
    order: str
    command: str
    outcome: str = RUNNING
    text: str = ""
    ended_at: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


class OrderLog:
    """Log of one state folder, with its latest orders in memory."""

    def __init__(self, state: Path) -> None:
        self._file = state / ORDERS_FILE
        self._orders: OrderedDict[str, LoggedOrder] = OrderedDict()
        for line in self._last_lines():
            self._read(line)
        for order in self._orders.values():
            if order.outcome == RUNNING:
                self._keep(replace(order, outcome=UNKNOWN))

    def latest(self) -> list[LoggedOrder]:
        """Return the latest orders, the last first."""
        return list(reversed(self._orders.values()))

    def begin(self, who: str, order: str, command: str) -> LoggedOrder:
        """Log an order that is about to begin. Raises OSError, and then the order must not."""
        begun = LoggedOrder(secrets.token_hex(6), _now(), who, order, command)
        rotate(self._file, LIMIT_BYTES, OLD_FILES)
        self._append(
            {key: getattr(begun, key) for key in ("id", "at", "who", "order", "command")},
            durable=True,
        )
        self._keep(begun)
        return begun

    def end(self, begun: LoggedOrder, status: int | None, text: str) -> LoggedOrder:
        """Log how an order ended; `status` None: no exit status. Raises OSError."""
        ended = _ended(begun, {"at": _now(), "status": status, "text": text[-MOST_TEXT:]})
        self._keep(ended)
        self._append({"id": begun.id, "at": ended.ended_at, "status": status, "text": ended.text})
        return ended

    def _keep(self, order: LoggedOrder) -> None:
        self._orders[order.id] = order
        while len(self._orders) > KEPT:
            self._orders.popitem(last=False)

    def _append(self, content: dict[str, Any], *, durable: bool = False) -> None:
        with self._file.open("ab+") as out:
            # Behind a line that a power cut has halved.
            begin = b"" if out.tell() == 0 or _ends_line(self._file) else b"\n"
            out.write(begin + json.dumps(content).encode() + b"\n")
            out.flush()
            if durable:
                os.fsync(out.fileno())

    def _last_lines(self) -> list[bytes]:
        try:
            with self._file.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - READ_BYTES))
                return log.read().splitlines()
        except FileNotFoundError:
            return []

    def _read(self, line: bytes) -> None:
        """Take a line up; a damaged line, or the end of an order that is not known, counts for
        nothing.
        """
        try:
            content = json.loads(line)
            if "command" in content:
                self._keep(LoggedOrder(**content))
            elif content["id"] in self._orders:
                self._keep(_ended(self._orders[content["id"]], content))
        except (ValueError, KeyError, TypeError):
            return


def _ended(order: LoggedOrder, content: dict[str, Any]) -> LoggedOrder:
    status = content["status"]
    outcome = UNKNOWN if status is None else DONE if status == 0 else FAILED
    return replace(order, outcome=outcome, text=str(content["text"]), ended_at=str(content["at"]))


def _ends_line(file: Path) -> bool:
    with file.open("rb") as log:
        log.seek(-1, os.SEEK_END)
        return log.read(1) == b"\n"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
