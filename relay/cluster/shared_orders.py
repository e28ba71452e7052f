"""Orders of an operator, which the node that runs a site's first slot has, for the other nodes.

The orders file goes with the first slot's state. Whoever runs that slot copies the file's changes
into the site's keyspace, and the other nodes copy from there: at once as they take a slot, and
every second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from dedup.journal.journal import JournalAway, JournalRefused
from dedup.journal.slot_taking import until_known
from federation import durable_file

log = logging.getLogger(__name__)

ORDERS = "orders"
"""Name of the fact."""
LOOK_EVERY_S = 1.0


class SiteFacts(Protocol):
    """Small facts about a site, which a quorum keeps. Both may raise JournalAway and
    JournalRefused.
    """

    async def fact(self, name: str) -> str | None:
        """Read a fact; None if there is none."""
        ...

    async def replace_fact(self, name: str, before: str | None, after: str) -> bool:
        """Write a fact if it is still the one `before`. Return False if it is another, or if an
        earlier call, whose answer was lost, has written it. Decided by consensus.
        """
        ...


class SharedOrders:
    """Orders in one node's `file`, given to the other nodes or taken from them."""

    def __init__(self, file: Path, facts: SiteFacts) -> None:
        self._file = file
        self._facts = facts
        self._gives = False
        self._given: str | None = None
        """Content that this node has given since it has the first slot."""

    def give(self, *, is_giver: bool) -> None:
        """Note whether this node runs the first slot, with whose state the file goes."""
        self._gives, self._given = is_giver, None

    async def bring(self, retry: Callable[[int], Awaitable[None]]) -> None:
        """Bring the file up to date before a slot begins here, unless this node has the orders.
        `retry` is that of `SlotTaking`. Raises JournalRefused, OSError.
        """
        if not self._gives:
            await until_known(self._take, retry)

    async def run(self) -> None:
        """Keep file and fact alike, for ever."""
        while True:
            try:
                await (self._give() if self._gives else self._take())
            except (JournalAway, JournalRefused):
                pass  # each slot's turns say so
            except OSError as error:
                log.error("orders are not shared: %s", error, extra={"event": "orders-not-shared"})
            await asyncio.sleep(LOOK_EVERY_S)

    async def _give(self) -> None:
        content = self._content()
        # A node that does not know yet that it has lost the slot gives nothing old.
        if content is None or content == self._given:
            return
        known = await self._facts.fact(ORDERS)
        if known == content or await self._facts.replace_fact(ORDERS, known, content):
            self._given = content

    async def _take(self) -> None:
        known = await self._facts.fact(ORDERS)
        if known is not None and known != self._content() and not self._gives:
            log.info(
                "orders of the node that runs the first slot: %s",
                known,
                extra={"event": "orders-taken"},
            )
            durable_file.write(self._file, known, durable=True)

    def _content(self) -> str | None:
        try:
            return self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
