"""A process's part in a repair over HTTP, for who knows its token (as `mending_routes`).

POST /sites/SITE/repair           {"messages": [{"batch", "entry", "identity", "destinations"},
                                   ...], "rate": messages a second, "dry_run": true: only look,
                                   "by": whose it is, "take_pieces": [destinations that do]}
POST /sites/SITE/repair/expected  {"identities": ["...", ...], "since_ms": published since then}
POST /sites/SITE/repair/settled   {"batches": ["...", ...]}
POST /sites/SITE/ledger           {}

The first answers JSON lines as it goes:
    {"looked_at"}, and with what was put into the log just now {"batch", "sent": [[batch, entry],
                                       ...]}
    {"waits_for", "messages", "for_s"} while another request is worked on
    {"refused": [batch, entry], "destinations", "why"} what may not be sent to these
    {"missing": [[batch, entry], ...]} the last ones: what this site's log does not have
The second, when it has looked for these in its ledger, which spares it doing so once they come:
{"for_s"} meanwhile, {"expected": how many}. The third: {"waiting": [...]}, those that the site has
not settled. The fourth: what the stages did so far is in the ledger's files, {"failure": ""} or why
not. Of all: {"error"} of what could not be done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Protocol

from aiohttp import web

from relay.admin.guard import check_token
from relay.batches.batch import BatchName
from relay.batches.name_set import NameSet
from relay.ledger_files.proof import LedgerProof, LedgerUnreadable
from relay.operator.repair_wanted import BadRequest, read_wanted
from relay.operator.repairing import (
    TOLD_EVERY_S,
    Refused,
    RepairFailed,
    Repairing,
    Request,
    Step,
    Waits,
)

MOST_BYTES = 64 << 20
"""Of one request: some 200,000 messages."""
DEFAULT_RATE = 1000.0
IN_A_LINE = 256


class RepairedSite(Protocol):
    """A running site's parts that have a share in a repair."""

    @property
    def repairing(self) -> Repairing: ...

    @property
    def proof(self) -> LedgerProof: ...

    @property
    def settled(self) -> NameSet:
        """Names of the batches that the site has settled."""
        ...

    async def export_ledger(self) -> str:
        """Write all that the stages did into the ledger's files; return why not, or nothing."""
        ...


Find = Callable[[str], "RepairedSite | None"]
"""Of a site; None while it starts. Raises KeyError for a site that is not served here."""
Answer = Callable[[web.Request, RepairedSite, dict[str, Any]], Awaitable[web.StreamResponse]]


class RepairRoutes:
    """Adds the routes above to a process's admin port."""

    def __init__(self, find: Find, token: str) -> None:
        self._find = find
        self._token = token

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/sites/{site}/repair", self._guarded(_repair))
        app.router.add_post("/sites/{site}/repair/expected", self._guarded(_expected))
        app.router.add_post("/sites/{site}/repair/settled", self._guarded(_settled))
        app.router.add_post("/sites/{site}/ledger", self._guarded(_ledger))

    def _guarded(self, answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def guarded(request: web.Request) -> web.StreamResponse:
            check_token(request, self._token)
            try:
                site = self._find(request.match_info["site"])
            except KeyError:
                raise web.HTTPNotFound(text="that site is not served here") from None
            if site is None:
                raise web.HTTPServiceUnavailable(text="the node is starting: try again")
            return await answer(request, site, await _asked(request))

        return guarded


async def _asked(request: web.Request) -> dict[str, Any]:
    data = bytearray()
    async for part in request.content.iter_any():  # `json()` takes no more than 1 MiB
        data += part
        if len(data) > MOST_BYTES:
            raise web.HTTPRequestEntityTooLarge(MOST_BYTES, len(data))
    try:
        asked = json.loads(data)
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise web.HTTPBadRequest(text="a JSON object is asked for")
    return asked


async def _repair(
    request: web.Request, site: RepairedSite, asked: dict[str, Any]
) -> web.StreamResponse:
    rate = asked.get("rate", DEFAULT_RATE)
    if not isinstance(rate, int | float) or not rate > 0:
        raise web.HTTPBadRequest(text="rate: messages a second, above 0")
    by, take_pieces = asked.get("by", "another repair"), asked.get("take_pieces", [])
    if not isinstance(by, str) or not isinstance(take_pieces, list):
        raise web.HTTPBadRequest(text="by: a text; take_pieces: a list of cluster IDs")
    try:
        wanted = read_wanted(asked.get("messages"))
    except BadRequest as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    repairing = site.repairing
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    ours = Request(wanted, by, frozenset(map(str, take_pieces)))
    steps = repairing.look(ours) if asked.get("dry_run") else repairing.send(ours, rate)
    try:
        async with aclosing(steps):
            async for step in steps:
                for told in _told(step):
                    await response.write(json.dumps(told).encode() + b"\n")
    except RepairFailed as error:
        await response.write(json.dumps({"error": str(error)}).encode() + b"\n")
    await response.write_eof()
    return response


async def _expected(
    request: web.Request, site: RepairedSite, asked: dict[str, Any]
) -> web.StreamResponse:
    try:
        identities = [bytes.fromhex(one) for one in asked["identities"]]
        since_ms = int(asked["since_ms"])
    except (KeyError, TypeError, ValueError):
        raise web.HTTPBadRequest(text='say {"identities": ["..."], "since_ms": 0}') from None
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    clock = asyncio.get_running_loop().time
    began = clock()
    looking = asyncio.create_task(site.proof.expect(identities, since_ms))
    try:
        while not (await asyncio.wait({looking}, timeout=TOLD_EVERY_S))[0]:
            await response.write(json.dumps({"for_s": round(clock() - began, 1)}).encode() + b"\n")
        looking.result()
        told: dict[str, Any] = {"expected": len(identities)}
    except LedgerUnreadable as error:
        told = {"error": str(error)}
    finally:
        looking.cancel()
    await response.write(json.dumps(told).encode() + b"\n")
    await response.write_eof()
    return response


def _told(step: Step) -> Iterator[dict[str, Any]]:
    """A line each: who reads them takes no endless ones."""
    if isinstance(step, Waits):
        yield {"waits_for": step.by, "messages": step.messages, "for_s": round(step.for_s, 1)}
        return
    if isinstance(step, Refused):
        wanted = step.wanted
        yield {
            "refused": wanted.place,
            "destinations": list(wanted.destinations),
            "why": step.why,
        }
        return
    if isinstance(step, list):
        for first in range(0, max(1, len(step)), IN_A_LINE):
            yield {"missing": [one.place for one in step[first : first + IN_A_LINE]]}
        return
    told: dict[str, Any] = {"looked_at": step.looked_at}
    if step.batch is not None:
        told |= {"batch": str(step.batch), "sent": [one.place for one in step.sent]}
    yield told


async def _settled(
    request: web.Request, site: RepairedSite, asked: dict[str, Any]
) -> web.StreamResponse:
    batches = asked.get("batches")
    try:
        if not isinstance(batches, list):
            raise TypeError(batches)
        names = [BatchName.parse(one) for one in batches]
    except (TypeError, ValueError, AttributeError):
        raise web.HTTPBadRequest(text='say {"batches": ["..."]}') from None
    settled = site.settled
    waiting = [text for text, name in zip(batches, names, strict=True) if name not in settled]
    return web.json_response({"waiting": waiting})


async def _ledger(
    request: web.Request, site: RepairedSite, asked: dict[str, Any]
) -> web.StreamResponse:
    return web.json_response({"failure": await site.export_ledger()})
