"""Orders of an operator to a process over HTTP: mending and repair, for callers with its token.

GET  /sites/SITE/dead-letters?most=N&bodies=1    {"total", "messages": [...]}
POST /sites/SITE/dead-letters/retry              {"ids": [...]} or {"all": true}; a JSON line a
POST /sites/SITE/dead-letters/drop               result, as they come
and the same of .../quarantine

POST /sites/SITE/repair           {"messages": [{"batch", "entry", "identity", "destinations"},
                                   ...], "rate": messages a second, "dry_run": true: only look,
                                   "by": name of the asker, "take_pieces": [destinations that do]}
POST /sites/SITE/repair/expected  {"identities": ["...", ...], "since_ms": published since then}
POST /sites/SITE/repair/settled   {"batches": ["...", ...]}
POST /sites/SITE/ledger           {}

`repair` answers JSON lines as it goes:
    {"looked_at"}, and after each batch appended to the log {"batch", "sent": [[batch, entry], ...]}
    {"waits_for", "messages", "for_s"} while another request is worked on
    {"refused": [batch, entry], "destinations", "why"} for destinations that may not be sent it
    {"missing": [[batch, entry], ...]} last: messages that this site's log does not have
`expected` looks for the identities in the site's ledger beforehand, which spares the search when
the messages come: {"for_s"} meanwhile, then {"expected": count}. `settled` answers {"waiting":
[...]}, the batches that the site has not settled. `ledger` writes all rows so far into files:
{"failure": ""} or the reason. All of them answer {"error"} for what could not be done.

Header `Authorization: Bearer TOKEN`; the token is in a file that only the node's user can read.
Answers: 401 without it, 404 for a site of another process, 503 while the node cannot do it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
)
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, TypeVar

from aiohttp import web

from federation import durable_file
from relay.admin.access import check_token
from relay.batches.batch import BatchName
from relay.delivery.put_aside import Aside, PutAside
from relay.ledger_proof import LedgerUnreadable
from relay.operator.mending import MOST_AT_ONCE, Look, MendingError, Result
from relay.operator.repair_wanted import BadRequest, read_wanted
from relay.operator.repairing import (
    PROGRESS_EVERY_S,
    NotSent,
    RepairFailed,
    RepairRequest,
    Step,
    Waits,
)

MOST_BYTES = 64 << 20
"""Limit of a repair request's body: some 200,000 messages."""
DEFAULT_RATE = 1000.0
IN_A_LINE = 256

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Repairs(Protocol):
    """Repairs of a site, as `Repairing` makes them."""

    def look(self, request: RepairRequest) -> AsyncGenerator[Step, None]: ...

    def send(self, request: RepairRequest, rate: float) -> AsyncGenerator[Step, None]: ...


class SettledNames(Protocol):
    """Set of batch names that answers for single ones."""

    def __contains__(self, name: BatchName, /) -> bool: ...


class MendedSite(Protocol):
    """Mending of a site, as `Mending` does it."""

    async def look(self, aside: Aside, most: int) -> Look: ...

    def retry(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]: ...

    def drop(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]: ...


class RepairedSite(Protocol):
    """Parts of a running site that take part in a repair."""

    @property
    def repairing(self) -> Repairs: ...

    @property
    def settled(self) -> SettledNames:
        """Names of the batches that the site has settled."""
        ...

    async def expect(self, identities: Collection[bytes], since_ms: int) -> None:
        """Look the identities up in the ledger, before they come. Raises LedgerUnreadable."""
        ...

    async def export_ledger(self) -> str:
        """Write all ledger rows into files; return the failure, empty if there was none."""
        ...


FindMending = Callable[[str], MendedSite | None]
"""Return a site's mending, None while the site starts. Raises KeyError for a site not served."""
FindSite = Callable[[str], RepairedSite | None]
"""Return a running site, None while the site starts. Raises KeyError for a site not served."""


def _found(find: Callable[[str], T | None], request: web.Request, token: str) -> T:
    """Check the token and look the request's site up. Raises the fitting HTTP error."""
    check_token(request, token)
    try:
        site = find(request.match_info["site"])
    except KeyError:
        raise web.HTTPNotFound(text="that site is not served here") from None
    if site is None:
        raise web.HTTPServiceUnavailable(text="the node is starting: try again")
    return site


class MendingRoutes:
    """Adds the routes of dead letters and quarantine to a process's admin port."""

    def __init__(self, find: FindMending) -> None:
        self._find = find
        self.token = secrets.token_hex(16)

    def add_to(self, app: web.Application) -> None:
        for aside in Aside:
            path = f"/sites/{{site}}/{aside.value}"
            app.router.add_get(path, self._guarded(aside, self._look))
            app.router.add_post(path + "/{action:retry|drop}", self._guarded(aside, self._do))

    def _guarded(
        self,
        aside: Aside,
        answer: Callable[[web.Request, Aside, MendedSite], Awaitable[web.StreamResponse]],
    ) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            return await answer(request, aside, _found(self._find, request, self.token))

        return guarded

    async def _look(self, request: web.Request, aside: Aside, mending: MendedSite) -> web.Response:
        try:
            most = max(0, int(request.query.get("most", MOST_AT_ONCE)))
        except ValueError:
            raise web.HTTPBadRequest(text="most: a number") from None
        try:
            look = await mending.look(aside, most)
        except MendingError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from None
        with_bodies = "bodies" in request.query
        messages = [_put_aside_json(message, with_bodies) for message in look.messages]
        return web.json_response({"total": look.total, "messages": messages})

    async def _do(
        self, request: web.Request, aside: Aside, mending: MendedSite
    ) -> web.StreamResponse:
        ids = await _chosen_ids(request)
        do = mending.retry if request.match_info["action"] == "retry" else mending.drop
        response = await _json_lines(request)
        try:
            async for result in do(aside, ids):
                await _line(
                    response, {"id": result.id, "outcome": result.outcome, "said": result.reason}
                )
        except MendingError as error:
            await _line(response, {"error": str(error)})
        await response.write_eof()
        return response


class RepairRoutes:
    """Adds the routes of repair and ledger to a process's admin port."""

    def __init__(self, find: FindSite, token: str) -> None:
        self._find = find
        self._token = token

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/sites/{site}/repair", self._guarded(_repair))
        app.router.add_post("/sites/{site}/repair/expected", self._guarded(_expected))
        app.router.add_post("/sites/{site}/repair/settled", self._guarded(_settled))
        app.router.add_post("/sites/{site}/ledger", self._guarded(_ledger))

    def _guarded(
        self,
        answer: Callable[
            [web.Request, RepairedSite, dict[str, Any]], Awaitable[web.StreamResponse]
        ],
    ) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            site = _found(self._find, request, self._token)
            return await answer(request, site, await _json_object(request))

        return guarded


def write_token(folder: Path, token: str) -> None:
    """Put the token where a command on this machine finds it: folder/admin.token."""
    durable_file.write(folder / "admin.token", token, mode=durable_file.OWNER_ONLY)


async def _chosen_ids(request: web.Request) -> Collection[str] | None:
    """IDs that the request names, or None for all."""
    try:
        body = await request.json()
        if body.get("all") is True:
            return None
        ids = body["ids"]
        if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
            raise ValueError(ids)
    except (ValueError, KeyError, AttributeError):
        raise web.HTTPBadRequest(text='say {"ids": ["..."]} or {"all": true}') from None
    return frozenset(ids)


async def _json_lines(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    return response


async def _line(response: web.StreamResponse, content: dict[str, Any]) -> None:
    await response.write(json.dumps(content).encode() + b"\n")


def _put_aside_json(message: PutAside, with_body: bool) -> dict[str, Any]:
    origin = message.origin
    content: dict[str, Any] = {
        "id": message.id,
        "reason": message.reason,
        "attempts": message.attempts,
        "exchange": message.exchange,
        "routing_key": message.routing_key.decode(errors="replace"),
        "bytes": len(message.body),
        "path": list(origin.path) if origin else [],
        "batch": str(origin.name) if origin else "",
        "identity": origin.identity.hex() if origin else "",
        "published_ms": origin.published_ms if origin else None,
    }
    if with_body:
        content["properties_base64"] = base64.b64encode(message.properties).decode()
        content["body_base64"] = base64.b64encode(message.body).decode()
    return content


async def _json_object(request: web.Request) -> dict[str, Any]:
    data = bytearray()
    async for part in request.content.iter_any():  # `json()` takes no more than 1 MiB
        data += part
        if len(data) > MOST_BYTES:
            raise web.HTTPRequestEntityTooLarge(MOST_BYTES, len(data))
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="a JSON object is asked for")
    return body


async def _repair(
    request: web.Request, site: RepairedSite, body: dict[str, Any]
) -> web.StreamResponse:
    rate = body.get("rate", DEFAULT_RATE)
    if not isinstance(rate, int | float) or not rate > 0:
        raise web.HTTPBadRequest(text="rate: messages a second, above 0")
    by, take_pieces = body.get("by", "another repair"), body.get("take_pieces", [])
    if not isinstance(by, str) or not isinstance(take_pieces, list):
        raise web.HTTPBadRequest(text="by: a text; take_pieces: a list of cluster IDs")
    try:
        wanted = read_wanted(body.get("messages"))
    except BadRequest as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    repairing = site.repairing
    response = await _json_lines(request)
    ours = RepairRequest(wanted, by, frozenset(map(str, take_pieces)))
    steps = repairing.look(ours) if body.get("dry_run") else repairing.send(ours, rate)
    try:
        async with aclosing(steps):
            async for step in steps:
                for content in _step_json(step):
                    await _line(response, content)
    except RepairFailed as error:
        await _line(response, {"error": str(error)})
    await response.write_eof()
    return response


async def _expected(
    request: web.Request, site: RepairedSite, body: dict[str, Any]
) -> web.StreamResponse:
    try:
        identities = [bytes.fromhex(one) for one in body["identities"]]
        since_ms = int(body["since_ms"])
    except (KeyError, TypeError, ValueError):
        raise web.HTTPBadRequest(text='say {"identities": ["..."], "since_ms": 0}') from None
    response = await _json_lines(request)
    clock = asyncio.get_running_loop().time
    began = clock()
    looking = asyncio.create_task(site.expect(identities, since_ms))
    try:
        while not (await asyncio.wait({looking}, timeout=PROGRESS_EVERY_S))[0]:
            await _line(response, {"for_s": round(clock() - began, 1)})
        looking.result()
        content: dict[str, Any] = {"expected": len(identities)}
    except LedgerUnreadable as error:
        content = {"error": str(error)}
    finally:
        looking.cancel()
    await _line(response, content)
    await response.write_eof()
    return response


def _step_json(step: Step) -> Iterator[dict[str, Any]]:
    """Objects of a step, one a line, of bounded length: readers take no endless lines."""
    if isinstance(step, Waits):
        yield {"waits_for": step.by, "messages": step.messages, "for_s": round(step.for_s, 1)}
        return
    if isinstance(step, NotSent):
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
    content: dict[str, Any] = {"looked_at": step.looked_at}
    if step.batch is not None:
        content |= {"batch": str(step.batch), "sent": [one.place for one in step.sent]}
    yield content


async def _settled(
    request: web.Request, site: RepairedSite, body: dict[str, Any]
) -> web.StreamResponse:
    batches = body.get("batches")
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
    request: web.Request, site: RepairedSite, body: dict[str, Any]
) -> web.StreamResponse:
    return web.json_response({"failure": await site.export_ledger()})
