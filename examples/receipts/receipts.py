"""Receipts of what an application published and consumed, for `isthmus audit --receipts`.

Copy this file beside your application: it needs aio-pika and nothing of Isthmus. A receipt is a
line of JSON in FOLDER/SITE-DATE-PROCESS.jsonl; collect the folders of all sites (rsync, a bucket)
and give them to the audit.

    receipts = Receipts(Path("/var/log/shop/receipts"), "paris")
    await publish(exchange, aio_pika.Message(b"..."), "order.new", receipts)

    async for message in queue:
        consumed(message, receipts)     # before the acknowledgement
        await message.ack()

With `fsync=True` a receipt is on the disk before the work goes on: it outlives the machine's
failure, and costs a sync of the disk each. Without, it outlives the process's.
"""

from __future__ import annotations

import json
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aio_pika
from aio_pika.abc import AbstractExchange, AbstractIncomingMessage


class Receipts:
    """Appends lines; one write a line, so that threads do not mix theirs."""

    def __init__(self, folder: Path, site: str, *, fsync: bool = False) -> None:
        self.folder = folder
        self.site = site
        self.fsync = fsync
        self._date = ""
        self._file = -1

    def write(self, role: str, message_id: str, **more: Any) -> None:
        """One receipt, as of now. Raises OSError: work without a receipt is not work done."""
        now = datetime.now(UTC)
        said = {
            "message_id": message_id,
            "site": self.site,
            "time": now.isoformat(timespec="milliseconds"),
            "role": role,
        }
        said |= {key: value for key, value in more.items() if value is not None}
        self._open(now.date().isoformat())
        line = json.dumps(said).encode() + b"\n"
        if os.write(self._file, line) < len(line):
            raise OSError("the disk is full: half a receipt was written")
        if self.fsync:
            os.fdatasync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._date = -1, ""

    def _open(self, date: str) -> None:
        if date == self._date:
            return
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        name = self.folder / f"{self.site}-{date}-{os.getpid()}.jsonl"
        self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._date = date


async def publish(
    exchange: AbstractExchange,
    message: aio_pika.Message,
    routing_key: str,
    receipts: Receipts,
    **options: Any,
) -> str:
    """Publish on a channel with confirms, with a receipt before and one once it is confirmed; gives
    the message_id, which is made where there is none. Raises as `exchange.publish`.

    A process that dies between leaves a receipt that is not confirmed: nobody misses the message
    then, and nobody wonders where it came from if it arrives.
    """
    message_id = message.message_id or str(uuid.uuid4())
    message.message_id = message_id
    receipts.write("published", message_id, exchange=exchange.name, confirmed=False)
    await exchange.publish(message, routing_key, **options)
    receipts.write("published", message_id, exchange=exchange.name, confirmed=True)
    return message_id


def consumed(
    message: AbstractIncomingMessage, receipts: Receipts, queue: str | None = None
) -> None:
    """A receipt of a message that the application has dealt with. Call it before you acknowledge.

    `queue` tells the receipts of a site's queues apart, where several have the same message.
    """
    headers = message.headers
    exchange = headers.get("x-mesh-exchange", message.exchange)
    receipts.write(
        "consumed",
        message.message_id or "",
        exchange=str(exchange) if exchange else None,
        queue=queue,
        redelivered=bool(message.redelivered or headers.get("x-mesh-redelivered")),
    )
