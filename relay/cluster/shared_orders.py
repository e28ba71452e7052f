"""Orders of an operator, which the node that runs a site's first slot has, for the other nodes.

orders    content of that node's orders file, while there is one

The file goes with the first slot's state. The other nodes keep copies of the file: a slot that one
of them takes finds the order there.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from federation import durable_file
from relay.cluster.coordination import Coordination, CoordinationAway, CoordinationRefused

log = logging.getLogger(__name__)

PATH = "orders"
LOOK_EVERY_S = 1.0


class SharedOrders:
    """Orders in one node's `file`, given to the other nodes or taken from them."""

    def __init__(self, file: Path, coordination: Coordination) -> None:
        self._file = file
        self._coordination = coordination
        self.gives = False
        """True while this node runs the first slot, with whose state the file goes."""

    async def run(self) -> None:
        """Keep file and entry alike, for ever."""
        while True:
            try:
                await (self._give() if self.gives else self._take())
            except (CoordinationAway, CoordinationRefused):
                pass  # each slot's turns say so
            except OSError as error:
                log.error("orders are not shared: %s", error)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _give(self) -> None:
        seen = await self._coordination.read(PATH)
        content = self._content()
        if seen is not None and (seen.data != content or not seen.is_own):
            await self._coordination.remove(PATH)
            seen = None
        if seen is None and content is not None:
            await self._coordination.add(PATH, content)

    async def _take(self) -> None:
        seen = await self._coordination.read(PATH)
        if seen is None or self.gives:
            return  # nothing is known, as amid a takeover
        if seen.is_own:
            await self._coordination.remove(PATH)  # from when this node had the first slot
        elif seen.data != self._content():
            log.info("orders of the node that runs the first slot: %s", seen.data.decode())
            durable_file.write(self._file, seen.data.decode(), durable=True)

    def _content(self) -> bytes | None:
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            return None
