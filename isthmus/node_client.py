"""Client of this machine's nodes, found by their folders in the state folder."""

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
    """Node out of reach; the text names the remedy."""


class NodeSaysNo(Exception):
    """Node refused; the text is the node's."""


@dataclass(frozen=True, slots=True)
class NodeClient:
    """Client of one site's node, as announced in STATE/sites/SITE."""

    site: str
    port: int
    token: str

    @classmethod
    def of(cls, state: Path, site: str) -> NodeClient:
        """Find the node. Raises NodeAway."""
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
        """Get a JSON object from a path below the site's. Raises NodeAway, NodeSaysNo."""
        async with self._request("GET", path, params=query) as answer:
            answer_object: dict[str, Any] = await answer.json()
            return answer_object

    async def post(self, path: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Post a request; yield JSON objects as they come. Raises NodeAway, NodeSaysNo."""
        async with self._request("POST", path, json=body) as answer:
            async for line in answer.content:
                answer_object = json.loads(line)
                if "error" in answer_object:
                    raise NodeSaysNo(f"{self.site}: {answer_object['error']}")
                yield answer_object

    @asynccontextmanager
    async def _request(
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
