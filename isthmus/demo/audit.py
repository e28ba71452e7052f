"""The demo's last act: the audit of what was relayed, three losses on purpose, and the repair."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aio_pika
from rich.console import Console

from federation.mesh import Mesh
from isthmus.demo.losses import HEADER, Loss
from isthmus.demo.traffic import Consumer
from isthmus.repair.lost import read_audit
from isthmus.repair.second_audit import AFTER, second_audit
from isthmus.repair.work import RepairWork

LOST_AND_FOUND = "lost and found"
"""What these messages call their origin: counted apart from the demo's others."""
LOSSES = (Loss.BEFORE, Loss.AFTER, Loss.LINK)
IN_WORDS = {
    Loss.BEFORE: "before the barrier's commit",
    Loss.AFTER: "after it",
    Loss.LINK: "a batch at a link",
}
ARRIVES_WITHIN_S = 30.0
ENDS_WITHIN_S = 20.0
_MOST_TOLD = 1 << 26
"""Bytes of a command's answer."""
_MOST_SAID = 2000


class ActFailed(Exception):
    """The last act did not go as promised; the text says how."""


@dataclass(slots=True)
class DemoAudit:
    """`publisher` publishes, `victim` loses: the last site on the way, so that all others have it.
    `out`: for the reports.
    """

    mesh: Mesh
    file: Path
    state: Path
    out: Path
    began_ms: float
    console: Console
    tell: Callable[[str], None]
    _commands: asyncio.subprocess.Process | None = field(default=None, init=False)
    """Audits, and repairs: in one process, with one Spark."""

    async def close(self) -> None:
        """End what the acts have started."""
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

    async def tell_ledgers(self) -> None:
        """All nodes write down what they did so far. Raises ActFailed."""
        failures = await RepairWork(self.mesh, self.state, []).tell_ledgers()
        if failures:
            raise ActFailed("; ".join(failures.values()))

    async def proven(self) -> None:
        """What was relayed so far is proven. Raises ActFailed."""
        report = await self._audit("relayed")
        if report["verdict"] != "proven":
            raise ActFailed(f"the audit is not green: {report['sentence']}")

    async def lose_and_repair(self, uri: str, victim: Consumer, other: Consumer) -> None:
        """Three messages are lost at the victim, named by the audit, and repaired. `uri` is where
        they are published; `other` gets all of them. Raises ActFailed.
        """
        lost = await self._lose(uri, victim, other)
        report = await self._audit("lost")
        named = {finding["identity"] for finding in report["shown"]}
        if report["findings"] != {"lost": len(lost)} or named != lost:
            raise ActFailed(f"the audit does not name just what was lost: {report['sentence']}")
        # Its own audit would start another Spark: the same one is asked for here.
        self.tell(f"isthmus repair --no-audit --audit {self.out / 'lost'}")
        with self.console.status("repairing ..."):
            repair = ["repair", str(self.file), "--no-audit", "--audit", str(self.out / "lost")]
            status, told = await self._command([*repair, "--state", str(self.state), "--json"])
        if status:
            raise ActFailed(f"the repair ended with status {status}: {told}")
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

    async def _lose(self, uri: str, victim: Consumer, other: Consumer) -> set[str]:
        """Their identities, as the audit names them."""
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
                    headers[HEADER] = loss.at(victim.site)
                    identities.add(identity.hex)
                message = aio_pika.Message(b"{}", message_id=str(identity), headers=headers)
                await orders.publish(message, "order.lost")
                await _until(other, number + 1)
        await _until(victim, 1)
        return identities

    async def _audit(self, name: str) -> dict[str, Any]:
        """The report of everything from the beginning until now."""
        end_ms = time.time() * 1000 + 1
        self.tell(f"isthmus audit --out {self.out / name}")
        with self.console.status("auditing ..."):
            await self.tell_ledgers()
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
        """Exit status and what it told, as JSON. Raises ActFailed."""
        errors = self.out / "errors.log"
        if self._commands is None:
            errors.parent.mkdir(parents=True, exist_ok=True)
            with errors.open("wb") as file:
                self._commands = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "isthmus.in_turn"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=file,
                    limit=_MOST_TOLD,
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
            said = errors.read_text(errors="replace")[-_MOST_SAID:].strip() or "nothing"
            raise ActFailed(f"isthmus {words[0]} ended with status {ended['status']}: {said}")
        return ended["status"], json.loads(ended["out"])


async def _until(consumer: Consumer, count: int) -> None:
    """Until it has so many of them."""
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
