"""Orders of an operator over the slots of a site, over HTTP, for callers with the process's token.

POST /sites/SITE/slots/N/give    {"to": "NODE"}: another node is to have the slot. Answers {"to"} as
                                 the run of the slot begins to end

Answers: 401 without the token, 404 for a site of another process, 409 with the reason where the
slot cannot go to that node, or does not run here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from relay.admin.access import check_token

Give = Callable[[str, int, str], Awaitable[str]]
"""Give a site's slot to a node; return the reason if that cannot be, or an empty text. Raises
KeyError for a site not served, and for a slot that it lacks.
"""


class SlotRoutes:
    """Adds the routes of slots to a process's admin port."""

    def __init__(self, give: Give, token: str) -> None:
        self._give = give
        self._token = token

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/sites/{site}/slots/{slot:[0-9]+}/give", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        check_token(request, self._token)
        try:
            body: Any = await request.json()
            to = body["to"]
            if not isinstance(to, str) or not to:
                raise ValueError(to)
        except (ValueError, KeyError, TypeError):
            raise web.HTTPBadRequest(text='say {"to": "NODE"}') from None
        site, slot = request.match_info["site"], int(request.match_info["slot"])
        try:
            refusal = await self._give(site, slot, to)
        except KeyError:
            raise web.HTTPNotFound(text="that slot is not served here") from None
        if refusal:
            raise web.HTTPConflict(text=refusal)
        return web.json_response({"to": to})
