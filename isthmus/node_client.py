"""Client of this machine's nodes, found by their folders in the state folder."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from federation.wording import numbered
from relay.delivery.put_aside import Aside
from relay.node.site_folder import (
    ANNOUNCED,
    STANDBY,
    node_folders,
    site_folder,
    slot_folder,
    slot_folders,
)

ASK_WITHIN_S = 30.0
_STATUS_WITHIN_S = 5.0


class NodeAway(Exception):
    """Node out of reach; the text names the remedy."""


class SlotsElsewhere(NodeAway):
    """Slots of a site run at no node here; the nodes here have answered."""


class NodeSaysNo(Exception):
    """Node refused; the text is the node's."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Admin port of a node's process, and the token that the port asks for."""

    port: int
    token: str
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def of(cls, folder: Path) -> NodePlace:
        """Read what the node of a folder has announced. Raises OSError, ValueError, KeyError,
        TypeError.
        """
        announced = json.loads((folder / ANNOUNCED).read_text())
        token = (folder / "admin.token").read_text()
        return cls(int(announced["admin_port"]), token, int(announced["pid"]))


@dataclass(frozen=True, slots=True)
class NodeClient:
    """Client of the nodes that run a site, among those announced in STATE/sites/SITE: of one node,
    unless several share the site's slots.
    """

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

    async def get(self, path: str, **query: str | int) -> AsyncIterator[dict[str, Any]]:
        """Get a JSON object from a path below the site's, of each node that runs a part of the
        site. Raises NodeAway, NodeSaysNo; SlotsElsewhere and NodeSaysNo also after other answers.
        """
        with _away(self.site):
            async with aclosing(self._requests("GET", path, params=query)) as answers:
                async for answer in answers:
                    yield await answer.json()

    async def post(self, path: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Post a request to each of these nodes; yield JSON objects as they come. Raises as
        `get`.
        """
        with _away(self.site):
            async with aclosing(self._requests("POST", path, json=body)) as answers:
                async for answer in answers:
                    async for line in answer.content:
                        answer_object = json.loads(line)
                        if "error" in answer_object:
                            raise NodeSaysNo(f"{self.site}: {answer_object['error']}")
                        yield answer_object

    async def order(self, slot: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post an order to the node that runs a slot; return the answer. Raises as `get`."""
        with _away(self.site):
            return await self._ordered(slot, path, body)

    async def _ordered(self, slot: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with _session() as session:
            running = await _running(session, self.site, self.places)
            if slot not in running.places:
                raise NodeAway(_elsewhere(self.site, running))
            place = self.places[running.places[slot]]
            async with self._answer(session, place, "POST", path, json=body) as answer:
                content: dict[str, Any] = await answer.json()
                return content

    async def _requests(
        self, method: str, path: str, **request: Any
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        async with _session() as session:
            places = list(self.places)
            problem: SlotsElsewhere | NodeSaysNo | None = None
            if not self.is_alone:
                running = await _running(session, self.site, self.places)
                places = [self.places[number] for number in sorted({*running.places.values()})]
                if not places:
                    raise NodeAway(_elsewhere(self.site, running))
                if running.elsewhere:
                    problem = SlotsElsewhere(_elsewhere(self.site, running))
            for place in places:
                try:
                    async with self._answer(session, place, method, path, **request) as answer:
                        yield answer
                except NodeSaysNo as refusal:
                    # The others have other slots.
                    problem = problem or refusal
            if problem is not None:
                raise problem

    @asynccontextmanager
    async def _answer(
        self,
        session: aiohttp.ClientSession,
        place: NodePlace,
        method: str,
        path: str,
        **request: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Authorization": f"Bearer {place.token}"}
        url = f"{place.url}/sites/{self.site}/{path}"
        async with session.request(method, url, headers=headers, **request) as answer:
            if answer.status in (401, 404):
                raise NodeAway(_where(self.site))  # the port is another process's by now
            if answer.status != 200:
                raise NodeSaysNo(f"{self.site}: {await answer.text()}")
            yield answer


async def look_into(looks: dict[str, Any], client: NodeClient, aside: Aside, **query: int) -> None:
    """Add what the nodes of a site have put aside in a queue to `looks`, by the site, as their
    answers come: {"total", "messages"}. Raises NodeAway, NodeSaysNo.
    """
    async for answer in client.get(aside.value, **query):
        look = looks.setdefault(client.site, {"total": 0, "messages": []})
        look["total"] += answer["total"]
        look["messages"] = [*look["messages"], *answer["messages"]][: query.get("most")]


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=2 * ASK_WITHIN_S)
    return aiohttp.ClientSession(timeout=timeout)


@contextmanager
def _away(site: str) -> Iterator[None]:
    """Raise what a node that ends, or is not there, does to a request as NodeAway."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise NodeAway(f"{_where(site)} ({error})") from error


async def folder_that_runs(state: Path, site: str) -> Path:
    """Return the folder of the node of a site that takes the site's orders: that runs the site's
    first slot, or has stopped here with a reason; of a site with one node that node's. Raises
    NodeAway.
    """
    nodes, missing = await _nodes_of_slots(state, site)
    if 0 not in nodes:
        raise NodeAway(missing)
    return nodes[0]


async def slot_folders_that_run(state: Path, site: str) -> tuple[list[Path], str]:
    """Return the folders of a site's slots, the first slot's first, each of the node here that runs
    the slot or has stopped with a reason; and why these are not all, empty if they are. Raises
    NodeAway if there is none.
    """
    nodes, missing = await _nodes_of_slots(state, site)
    if not nodes:
        raise NodeAway(missing)
    return [slot_folder(folder, slot) for slot, folder in sorted(nodes.items())], missing


async def _nodes_of_slots(state: Path, site: str) -> tuple[dict[int, Path], str]:
    """Return, by slot, the folder of the node here that runs the slot or has stopped with a reason;
    and why that is not all, empty if it is.
    """
    own = site_folder(state, site)
    folders = node_folders(own)
    if folders == [own]:
        return dict.fromkeys(range(len(slot_folders(own))), own), ""
    places: list[NodePlace | None] = []
    for folder in folders:
        try:
            places.append(NodePlace.of(folder))
        except (OSError, ValueError, KeyError, TypeError):
            places.append(None)
    timeout = aiohttp.ClientTimeout(total=_STATUS_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        running = await _running(session, site, places)
    if running.places:
        nodes = {slot: folders[number] for slot, number in running.places.items()}
        return nodes, _elsewhere(site, running) if running.elsewhere else ""
    if not running.elsewhere and (stopped := list(filter(_has_stopped, folders))):
        return dict.fromkeys(range(len(slot_folders(stopped[0]))), stopped[0]), ""
    return {}, _elsewhere(site, running)


@dataclass(frozen=True, slots=True)
class _Running:
    """Places of nodes that run a site here, and what the nodes here say of the rest."""

    places: Mapping[int, int]
    """Slot -> number of the place whose node runs the slot."""
    elsewhere: Mapping[int, str]
    """Slot -> reason of a node here that stands by for the slot."""


async def _running(
    session: aiohttp.ClientSession, site: str, places: Sequence[NodePlace | None]
) -> _Running:
    """Ask the nodes which slots they run; None: a place where nobody answers."""
    found: dict[int, int] = {}
    reasons: dict[int, str] = {}
    for number, place in enumerate(places):
        own = None if place is None else await _own_report(session, place, site)
        if own is None:
            continue
        for slot, report in enumerate(own.get("slots", [own])):
            if report["state"] != STANDBY:
                found.setdefault(slot, number)
            else:
                reasons.setdefault(slot, report["reason"])
    return _Running(
        found, {slot: reason for slot, reason in sorted(reasons.items()) if slot not in found}
    )


async def _own_report(
    session: aiohttp.ClientSession, place: NodePlace, site: str
) -> dict[str, Any] | None:
    """Return the site's part of a node's report; None if nobody answers there, or another."""
    try:
        async with session.get(f"{place.url}/status") as answer:
            report = await answer.json()
            own: dict[str, Any] = report["sites"][site]
            is_it = report["pid"] == place.pid and {"state", "reason"} <= own.keys()
            return own if is_it else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        return None


def _has_stopped(folder: Path) -> bool:
    """Return True if the folder's node has ended with a reason."""
    try:
        return bool(json.loads((folder / ANNOUNCED).read_text()).get("stopped"))
    except (OSError, ValueError, AttributeError):
        return False


def _elsewhere(site: str, running: _Running) -> str:
    """Say why the nodes of a site that are here do not take an order for all of the site."""
    if running.elsewhere:
        reason = next(iter(running.elsewhere.values()))
        if running.places:
            return (
                f"{site}: not of {numbered('slot', list(running.elsewhere))}: its node here is"
                f" {reason}; run this on the machine of that node too"
            )
        return f"{site}: its node here is {reason}; run this on the machine of that node"
    return f"{site}: none of its nodes runs here: run this where one does, or start one"


def _where(site: str) -> str:
    return (
        f"{site}: its node does not answer here: run this where it runs, with the same --state, "
        "and see `isthmus status`"
    )
