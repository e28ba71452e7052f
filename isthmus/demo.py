"""Steps of `isthmus demo`: applications that publish and count, losses, audit and repair."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection
from rich.console import Console

from federation.mesh import Mesh
from isthmus.lost_messages import AFTER, read_audit, second_audit
from isthmus.repair import RepairWork
from relay.ledger.rows import OUTCOME_MASK, Outcome

_AT_ONCE = 100
"""Publishes under way at a time, like an application with a pool of workers."""
_AGAIN_EVERY = 100
"""Every such message is sent twice under one ID, as unsure clients do."""


@dataclass(slots=True)
class DemoPublisher:
    """Publisher at one site, with counts of confirms."""

    site: str
    uri: str
    count: int
    per_second: float
    confirmed: int = 0
    again: int = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        connection = await aio_pika.connect(self.uri)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            orders = await channel.get_exchange("orders", ensure=False)
            began = loop.time()
            for first in range(0, self.count, _AT_ONCE):
                await asyncio.sleep(began + first / self.per_second - loop.time())
                batch = range(first, min(first + _AT_ONCE, self.count))
                # One after the other into the channel, so that their order is that of numbers;
                # the confirms are waited for together.
                await asyncio.gather(*(self._publish(orders, number) for number in batch))

    async def _publish(self, orders: aio_pika.abc.AbstractExchange, number: int) -> None:
        message = aio_pika.Message(
            f'{{"site": "{self.site}", "order": {number}, "text": "{"x" * 200}"}}'.encode(),
            message_id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.site}/{number}")),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            headers={"number": number, "origin": self.site},
        )
        await orders.publish(message, f"order.{self.site}", mandatory=False)
        self.confirmed += 1
        if number % _AGAIN_EVERY == 0:
            await orders.publish(message, f"order.{self.site}", mandatory=False)
            self.again += 1


@dataclass(slots=True)
class DemoConsumer:
    """Consumer at one site, with counts of arrivals, copies and disorder."""

    site: str
    uri: str
    seen: dict[str, Counter[int]] = field(default_factory=dict)
    flagged: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    """Unflagged copies beyond the first, by origin."""
    disordered: Counter[str] = field(default_factory=Counter)
    _last: dict[str, int] = field(default_factory=dict)
    _connection: AbstractRobustConnection | None = None

    async def start(self) -> None:
        self._connection = await aio_pika.connect_robust(self.uri)
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=1000)
        queue = await channel.declare_queue(f"demo.{self.site}", durable=True)
        await queue.bind("orders", "order.#")
        await queue.consume(self._take, no_ack=True)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def arrived(self, origin: str) -> int:
        """Return the number of distinct messages of an origin."""
        return len(self.seen.get(origin, ()))

    async def _take(self, message: AbstractIncomingMessage) -> None:
        origin, number = str(message.headers["origin"]), int(str(message.headers["number"]))
        counts = self.seen.setdefault(origin, Counter())
        flagged = bool(message.headers.get("x-mesh-redelivered", False))
        if flagged:
            self.flagged[origin] += 1
        elif counts[number]:
            self.repeated[origin] += 1
        elif number < self._last.get(origin, -1):
            self.disordered[origin] += 1
        counts[number] += 1
        if not flagged:
            self._last[origin] = max(number, self._last.get(origin, -1))


LOSS_HEADER = "x-demo-lose"
"""Header by which a message asks to be lost by the nodes of LOSSY_NODES."""
LOSSY_NODES = "isthmus.lossy_nodes"


class Loss(StrEnum):
    """Place where a message is lost."""

    LINK = "link"
    BEFORE = "before"
    AFTER = "after"

    def at(self, site: str) -> str:
        """Return the header's value."""
        return f"{self.value}@{site}"


LOST_AND_FOUND = "lost and found"
"""Origin of the lost messages, counted apart from others."""
LOSSES = (Loss.BEFORE, Loss.AFTER, Loss.LINK)
IN_WORDS = {
    Loss.BEFORE: "before the barrier's commit",
    Loss.AFTER: "after it",
    Loss.LINK: "a batch at a link",
}
ARRIVES_WITHIN_S = 30.0
ENDS_WITHIN_S = 20.0
_MOST_ANSWER_BYTES = 1 << 26
"""Limit (bytes) of a command's answer."""
_MOST_ERROR_CHARACTERS = 2000


class ActFailed(Exception):
    """The last act failed; the text says how."""


@dataclass(slots=True)
class DemoAudit:
    """Last act of a demo; reports go to `out`."""

    mesh: Mesh
    file: Path
    state: Path
    out: Path
    began_ms: float
    console: Console
    tell: Callable[[str], None]
    _commands: asyncio.subprocess.Process | None = field(default=None, init=False)
    """Process for audits and repairs, with one Spark."""

    async def close(self) -> None:
        """End the process for audits and repairs."""
        process, self._commands = self._commands, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def write_ledgers(self) -> None:
        """Have all nodes write their ledgers. Raises ActFailed."""
        failures = await RepairWork(self.mesh, self.state, []).write_ledgers()
        if failures:
            raise ActFailed("; ".join(failures.values()))

    async def proven(self) -> None:
        """Prove the messages relayed so far. Raises ActFailed."""
        report = await self._audit("relayed")
        if report["verdict"] != "proven":
            raise ActFailed(f"the audit is not green: {report['sentence']}")

    async def lose_and_repair(self, uri: str, victim: DemoConsumer, other: DemoConsumer) -> None:
        """Lose three messages at the victim, check that the audit names them, and repair.

        Messages are published at `uri`; the victim is the last site on the way, and `other` gets
        all of them. Raises ActFailed.
        """
        lost = await self._lose(uri, victim, other)
        report = await self._audit("lost")
        named = {finding["identity"] for finding in report["shown"]}
        if report["findings"] != {"lost": len(lost)} or named != lost:
            raise ActFailed(f"the audit does not name just what was lost: {report['sentence']}")
        # The repair's own audit would start another Spark; this one is running.
        self.tell(f"isthmus repair --no-audit --audit {self.out / 'lost'}")
        with self.console.status("repairing ..."):
            repair = ["repair", str(self.file), "--no-audit", "--audit", str(self.out / "lost")]
            status, output = await self._command([*repair, "--state", str(self.state), "--json"])
        if status:
            raise ActFailed(f"the repair ended with status {status}: {output}")
        out = self.out / "lost" / AFTER
        self.tell(f"isthmus audit --out {out}")
        with self.console.status("auditing again ..."):
            folder = read_audit(self.out / "lost")
            _, after = await self._command(second_audit(folder, self.file, out, self.state, None))
        if after["verdict"] != "proven":
            raise ActFailed(f"the audit after the repair is not green: {after['sentence']}")
        await _until(victim, len(lost) + 1)
        self.tell(f"{len(lost)} of {len(lost)} messages repaired; {after['sentence']}")
        self.tell(f"report: {out / 'report.html'}")

    async def _lose(self, uri: str, victim: DemoConsumer, other: DemoConsumer) -> set[str]:
        """Lose messages; return their identities as the audit names them."""
        words = ", ".join(IN_WORDS[loss] for loss in LOSSES)
        self.tell(f"three messages are lost on purpose at {victim.site}: {words}")
        identities = set()
        connection = await aio_pika.connect(uri)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            orders = await channel.get_exchange("orders", ensure=False)
            # One after the other, each in a batch of its own; the last one shows that the site is
            # done with those before it.
            for number, loss in enumerate((*LOSSES, None)):
                identity = uuid.uuid4()
                headers: dict[str, Any] = {"number": number, "origin": LOST_AND_FOUND}
                if loss is not None:
                    headers[LOSS_HEADER] = loss.at(victim.site)
                    identities.add(identity.hex)
                message = aio_pika.Message(b"{}", message_id=str(identity), headers=headers)
                await orders.publish(message, "order.lost")
                await _until(other, number + 1)
        await _until(victim, 1)
        return identities

    async def _audit(self, name: str) -> dict[str, Any]:
        """Audit from the beginning until now; return the report."""
        end_ms = time.time() * 1000 + 1
        self.tell(f"isthmus audit --out {self.out / name}")
        with self.console.status("auditing ..."):
            await self.write_ledgers()
            _, report = await self._command(
                [
                    *("audit", str(self.file), "--out", str(self.out / name)),
                    *("--from", _moment(self.began_ms), "--to", _moment(end_ms)),
                    *("--state", str(self.state), "--json"),
                ]
            )
        self.tell(str(report["sentence"]))
        for why in report["why_not_proven"]:
            self.tell(f"not proven: {why}")
        return report

    async def _command(self, words: Sequence[str]) -> tuple[int, dict[str, Any]]:
        """Run a command; return exit status and JSON output. Raises ActFailed."""
        errors = self.out / "errors.log"
        if self._commands is None:
            errors.parent.mkdir(parents=True, exist_ok=True)
            with errors.open("wb") as file:
                self._commands = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "isthmus.in_turn"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=file,
                    limit=_MOST_ANSWER_BYTES,
                )
        process = self._commands
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(words).encode() + b"\n")
        try:
            answer = await process.stdout.readline()
        except asyncio.CancelledError:
            process.kill()
            raise
        ended: dict[str, Any] = json.loads(answer) if answer else {"out": ""}
        if not answer:
            ended["status"] = await process.wait()
        if not ended["out"]:
            errors_text = (
                errors.read_text(errors="replace")[-_MOST_ERROR_CHARACTERS:].strip() or "nothing"
            )
            raise ActFailed(
                f"isthmus {words[0]} ended with status {ended['status']}: {errors_text}"
            )
        return ended["status"], json.loads(ended["out"])


async def _until(consumer: DemoConsumer, count: int) -> None:
    """Wait until the consumer has `count` lost messages. Raises ActFailed."""
    try:
        async with asyncio.timeout(ARRIVES_WITHIN_S):
            while consumer.arrived(LOST_AND_FOUND) < count:
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise ActFailed(
            f"{consumer.site} has {consumer.arrived(LOST_AND_FOUND)} messages of {count} after"
            f" {ARRIVES_WITHIN_S:.0f} s"
        ) from None


def _moment(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class LedgerCounts:
    """Counts of a site's ledger by origin (cluster ID)."""

    delivered: Counter[str] = field(default_factory=Counter)
    suppressed: Counter[str] = field(default_factory=Counter)


def read_counts(folder: Path) -> LedgerCounts:
    """Sum the `delivered` rows of all files of a ledger."""
    import pyarrow.parquet as pq

    counts = LedgerCounts()
    for file in sorted(folder.glob("date=*/delivered-*.parquet")):
        table = pq.ParquetFile(file).read(columns=["origin", "outcomes"])
        for origin, outcomes in zip(*(column.to_pylist() for column in table.columns), strict=True):
            for outcome in outcomes or b"":
                if outcome & OUTCOME_MASK == Outcome.DUPLICATE:
                    counts.suppressed[origin] += 1
                elif outcome & OUTCOME_MASK == Outcome.DELIVERED:
                    counts.delivered[origin] += 1
    return counts
