"""Client of this machine's nodes, found by their folders in the state folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from relay.node.site_folder import ANNOUNCED, STANDBY, node_folders, site_folder

ASK_WITHIN_S = 30.0
_STATUS_WITHIN_S = 5.0


class NodeAway(Exception):
    """Node out of reach; the text names the remedy."""


class NodeSaysNo(Exception):
    """Node refused; the text is the node's."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Admin port of a node, and the token that the port asks for."""

    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def of(cls, folder: Path) -> NodePlace:
        """Read what the node of a folder has announced. Raises OSError, ValueError, KeyError,
        TypeError.
        """
        port = int(json.loads((folder / ANNOUNCED).read_text())["admin_port"])
        return cls(port, (folder / "admin.token").read_text())


@dataclass(frozen=True, slots=True)
class NodeClient:
    """Client of the node that runs a site, among those announced in STATE/sites/SITE."""

    site: str
    places: Sequence[NodePlace]
    is_alone: bool
    """True for the node of a site that has one."""

    @classmethod
    def of(cls, state: Path, site: str) -> NodeClient:
        """Find the nodes. Raises NodeAway."""
        folder = site_folder(state, site)
        try:
            folders = node_folders(folder)
            return cls(site, [NodePlace.of(one) for one in folders], folders == [folder])
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
        try:
            async with AsyncExitStack() as open_answer:
                session = await open_answer.enter_async_context(
                    aiohttp.ClientSession(timeout=timeout)
                )
                place = await self._running(session)
                headers = {"Authorization": f"Bearer {place.token}"}
                url = f"{place.url}/sites/{self.site}/{path}"
                answer = await open_answer.enter_async_context(
                    session.request(method, url, headers=headers, **request)
                )
                if answer.status in (401, 404):
                    raise NodeAway(_where(self.site))  # the port is another process's by now
                if answer.status != 200:
                    raise NodeSaysNo(f"{self.site}: {await answer.text()}")
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeAway(f"{_where(self.site)} ({error})") from error

    async def _running(self, session: aiohttp.ClientSession) -> NodePlace:
        """Return the place of the node that runs the site, or of the only one. Raises NodeAway."""
        if self.is_alone:
            return self.places[0]
        number, reasons = await _that_runs(session, self.site, self.places)
        if number is None:
            raise NodeAway(_elsewhere(self.site, reasons))
        return self.places[number]


async def folder_that_runs(state: Path, site: str) -> Path:
    """Return the folder of the node of a site that runs the site, or has stopped here with a
    reason; of a site with one node that node's. Raises NodeAway.
    """
    own = site_folder(state, site)
    folders = node_folders(own)
    if folders == [own]:
        return own
    places: list[NodePlace | None] = []
    for folder in folders:
        try:
            places.append(NodePlace.of(folder))
        except (OSError, ValueError, KeyError, TypeError):
            places.append(None)
    timeout = aiohttp.ClientTimeout(total=_STATUS_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        number, reasons = await _that_runs(session, site, places)
    if number is not None:
        return folders[number]
    if not any(reasons) and (stopped := list(filter(_has_stopped, folders))):
        return stopped[0]
    raise NodeAway(_elsewhere(site, reasons))


async def _that_runs(
    session: aiohttp.ClientSession, site: str, places: Sequence[NodePlace | None]
) -> tuple[int | None, list[str]]:
    """Return the number of the place whose node runs the site, or None, and the reasons of those
    that stand by; empty for a place where nobody answers.
    """
    reasons = []
    for number, place in enumerate(places):
        own = None if place is None else await _own_report(session, place, site)
        if own is not None and own["state"] != STANDBY:
            return number, []
        reasons.append(own["reason"] if own is not None else "")
    return None, reasons


async def _own_report(
    session: aiohttp.ClientSession, place: NodePlace, site: str
) -> dict[str, Any] | None:
    """Return the site's part of a node's report; None if nobody answers there, or another."""
    try:
        async with session.get(f"{place.url}/status") as answer:
            own: dict[str, Any] = (await answer.json())["sites"][site]
            return own if {"state", "reason"} <= own.keys() else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        return None


def _has_stopped(folder: Path) -> bool:
    """Return True if the folder's node has ended with a reason."""
    try:
        return bool(json.loads((folder / ANNOUNCED).read_text()).get("stopped"))
    except (OSError, ValueError, AttributeError):
        return False


def _elsewhere(site: str, reasons: Sequence[str]) -> str:
    """Say why none of a site's nodes here takes an order; `reasons` are of those that stand by."""
    if reason := next(filter(None, reasons), ""):
        return f"{site}: its node here is {reason}; run this on the machine of that node"
    return f"{site}: none of its nodes runs here: run this where one does, or start one"


def _where(site: str) -> str:
    return (
        f"{site}: its node does not answer here: run this where it runs, with the same --state, "
        "and see `isthmus status`"
    )
