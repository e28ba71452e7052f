"""Asking the nodes of this machine: where each answers stands in its folder of the state."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

ASK_WITHIN_S = 30.0


class NodeAway(Exception):
    """A node cannot be asked; the text says what to do."""


class NodeSaysNo(Exception):
    """A node answered that it cannot do this; the text is its own."""


@dataclass(frozen=True, slots=True)
class NodeClient:
    """One site's node, as a process of this machine announced it in STATE/sites/SITE."""

    site: str
    port: int
    token: str

    @classmethod
    def of(cls, state: Path, site: str) -> NodeClient:
        """Raises NodeAway."""
        folder = state / "sites" / site
        try:
            port = int(json.loads((folder / "node.json").read_text())["admin_port"])
            return cls(site, port, (folder / "admin.token").read_text())
        except PermissionError as error:
            raise NodeAway(
                f"{site}: {error.filename} cannot be read: run this as the user of the node"
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise NodeAway(_where(site)) from None

    async def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """A JSON object. `path` is below the site's. Raises NodeAway, NodeSaysNo."""
        async with self._asking("GET", path, params=query) as answer:
            told: dict[str, Any] = await answer.json()
            return told

    async def post(self, path: str, asked: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """JSON objects as they come. Raises NodeAway, NodeSaysNo."""
        async with self._asking("POST", path, json=asked) as answer:
            async for line in answer.content:
                told = json.loads(line)
                if "error" in told:
                    raise NodeSaysNo(f"{self.site}: {told['error']}")
                yield told

    @asynccontextmanager
    async def _asking(
        self, method: str, path: str, **request: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=2 * ASK_WITHIN_S)
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"http://127.0.0.1:{self.port}/sites/{self.site}/{path}"
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(method, url, **request) as answer,
            ):
                if answer.status in (401, 404):
                    raise NodeAway(_where(self.site))  # the port is another process's by now
                if answer.status != 200:
                    raise NodeSaysNo(f"{self.site}: {await answer.text()}")
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeAway(f"{_where(self.site)} ({error})") from error


def _where(site: str) -> str:
    return (
        f"{site}: its node does not answer here: run this where it runs, with the same --state, "
        "and see `isthmus status`"
    )
