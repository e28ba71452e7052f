"""A process's dead letters and quarantines over HTTP, for who knows its token.

GET  /sites/SITE/dead-letters?most=N&bodies=1    {"total", "messages": [...]}
POST /sites/SITE/dead-letters/retry              {"ids": [...]} or {"all": true}; a JSON line a
POST /sites/SITE/dead-letters/drop               result, as they come
and the same of .../quarantine

Header `Authorization: Bearer TOKEN`; the token is in a file that only the node's user can read.
Answers: 401 without it, 404 for a site of another process, 503 while the node cannot do it.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from aiohttp import web

from federation import durable_file
from relay.admin.guard import check_token
from relay.delivery.put_aside import Aside, PutAside
from relay.operator.mending import MOST_AT_ONCE, Mending, MendingError

Find = Callable[[str], "Mending | None"]
"""Of a site; None while it starts. Raises KeyError for a site that is not served here."""


class MendingRoutes:
    """Adds the routes above to a process's admin port."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self.token = secrets.token_hex(16)

    def add_to(self, app: web.Application) -> None:
        for aside in Aside:
            path = f"/sites/{{site}}/{aside.value}"
            app.router.add_get(path, self._guarded(aside, self._look))
            app.router.add_post(path + "/{action:retry|drop}", self._guarded(aside, self._do))

    def _guarded(self, aside: Aside, answer: Any) -> Any:
        async def guarded(request: web.Request) -> web.StreamResponse:
            check_token(request, self.token)
            try:
                mending = self._find(request.match_info["site"])
            except KeyError:
                raise web.HTTPNotFound(text="that site is not served here") from None
            if mending is None:
                raise web.HTTPServiceUnavailable(text="the node is starting: try again")
            answered: web.StreamResponse = await answer(request, aside, mending)
            return answered

        return guarded

    async def _look(self, request: web.Request, aside: Aside, mending: Mending) -> web.Response:
        try:
            most = max(0, int(request.query.get("most", MOST_AT_ONCE)))
        except ValueError:
            raise web.HTTPBadRequest(text="most: a number") from None
        try:
            look = await mending.look(aside, most)
        except MendingError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from None
        with_bodies = "bodies" in request.query
        return web.json_response(
            {"total": look.total, "messages": [_told(one, with_bodies) for one in look.messages]}
        )

    async def _do(self, request: web.Request, aside: Aside, mending: Mending) -> web.StreamResponse:
        ids = await _asked_for(request)
        do = mending.retry if request.match_info["action"] == "retry" else mending.drop
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        try:
            async for result in do(aside, ids):
                await _line(
                    response, {"id": result.id, "outcome": result.outcome, "said": result.said}
                )
        except MendingError as error:
            await _line(response, {"error": str(error)})
        await response.write_eof()
        return response


def write_token(folder: Path, token: str) -> None:
    """Put the token where a command on this machine finds it: folder/admin.token."""
    durable_file.write(folder / "admin.token", token, mode=durable_file.OWNER_ONLY)


async def _asked_for(request: web.Request) -> Collection[str] | None:
    """The IDs; None for all."""
    try:
        asked = await request.json()
        if asked.get("all") is True:
            return None
        ids = asked["ids"]
        if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
            raise ValueError(ids)
    except (ValueError, KeyError, AttributeError):
        raise web.HTTPBadRequest(text='say {"ids": ["..."]} or {"all": true}') from None
    return frozenset(ids)


async def _line(response: web.StreamResponse, told: dict[str, Any]) -> None:
    await response.write(json.dumps(told).encode() + b"\n")


def _told(one: PutAside, with_body: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": one.id,
        "reason": one.reason,
        "attempts": one.attempts,
        "exchange": one.exchange,
        "routing_key": one.routing_key.decode(errors="replace"),
        "bytes": len(one.body),
        "path": list(one.origin.path) if one.origin else [],
        "batch": str(one.origin.name) if one.origin else "",
        "identity": one.origin.identity.hex() if one.origin else "",
        "published_ms": one.origin.published_ms if one.origin else None,
    }
    if with_body:
        told["properties_base64"] = base64.b64encode(one.properties).decode()
        told["body_base64"] = base64.b64encode(one.body).decode()
    return told
