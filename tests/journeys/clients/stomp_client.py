"""A STOMP client at one site: stomp.py's, which runs in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.journeys.clients.clients_mesh import ClientsMesh
from tests.journeys.clients.packages import client_package
from tests.waiting import until

WITHIN_S = 20.0


@dataclass(slots=True)
class StompClient:
    """A connected client and all that came to it: frames with `headers` and `body`."""

    connection: Any
    got: list[Any] = field(default_factory=list)
    receipts: set[str] = field(default_factory=set)
    errors: list[Any] = field(default_factory=list)

    async def send(self, destination: str, body: bytes, **headers: str) -> None:
        """Send with a receipt and wait for that; `_` in a header's name stands for `-`."""
        receipt = secrets.token_hex(4)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.send(destination, body, headers={**named, "receipt": receipt})
        await self._receives(receipt)

    async def subscribe(self, destination: str) -> None:
        receipt = secrets.token_hex(4)
        self.connection.subscribe(destination, id=receipt, receipt=receipt)
        await self._receives(receipt)

    async def has(self, count: int) -> list[Any]:
        """Wait for so many messages; more is an error."""
        await until(
            lambda: len(self.got) >= count,
            lambda: f"{count} messages, not {self.got}; errors: {self.errors}",
            WITHIN_S,
        )
        assert len(self.got) == count
        return self.got

    async def _receives(self, receipt: str) -> None:
        await until(
            lambda: receipt in self.receipts or self.errors,
            lambda: f"a receipt; errors: {self.errors}",
            WITHIN_S,
        )
        assert not self.errors, [one.body for one in self.errors]


@contextlib.asynccontextmanager
async def stomp_client(clients: ClientsMesh, site: str) -> AsyncIterator[StompClient]:
    """A client at the site, by STOMP 1.2."""
    stomp = client_package("stomp")
    connection = stomp.Connection12(
        [("127.0.0.1", clients.protocols.stomp)],
        vhost=clients.vhost(site).name,
        auto_decode=False,
        reconnect_attempts_max=1,
    )
    made = StompClient(connection)

    class Listener(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            made.got.append(frame)

        def on_receipt(self, frame: Any) -> None:
            made.receipts.add(frame.headers["receipt-id"])

        def on_error(self, frame: Any) -> None:
            made.errors.append(frame)

    connection.set_listener("", Listener())
    user, password = clients.login(site)
    await asyncio.to_thread(connection.connect, user, password, wait=True)
    try:
        yield made
    finally:
        await asyncio.to_thread(connection.disconnect)
