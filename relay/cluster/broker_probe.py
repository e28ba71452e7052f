"""Probe whether a node of several reaches its site's broker, without which it can run no slot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from federation.brokers.addresses import AddressBook
from relay.bulk_amqp import BulkAmqpError
from relay.cluster.coordination import CoordinationAway
from relay.cluster.site_entries import SiteEntries
from relay.node.brokers import Brokers

EVERY_S = 5.0
_WITHIN_S = 5.0
UNFIT_AFTER, CUT_OFF_AFTER = 3, 6
"""Number of failures in a row after which the node gets no slots, and gives its own away: by then
each other node that does not reach the broker has noticed."""
_PURPOSE = "standby"


class BrokerProbe:
    """Probe of one node. `book` returns the present addresses."""

    def __init__(self, brokers: Brokers, site: str, book: Callable[[], AddressBook]) -> None:
        self._brokers = brokers
        self._site = site
        self._book = book

    async def run(self, entries: SiteEntries) -> None:
        """Keep `is_fit` and `is_cut_off` of the entries, for ever, and show the others whether this
        node could run a slot. Raises CoordinationRefused.
        """
        entries.look_if_fit = self.reaches
        failures = 0
        while True:
            failures = 0 if await self.reaches() else failures + 1
            entries.is_fit = failures < UNFIT_AFTER
            entries.is_cut_off = failures >= CUT_OFF_AFTER
            with contextlib.suppress(CoordinationAway):
                await entries.show_fitness()
            await asyncio.sleep(EVERY_S)

    async def reaches(self) -> bool:
        """Return True if the broker lets this node in now."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                connection = await self._brokers.connect(self._book(), self._site, _PURPOSE)
                await connection.close()
        except (BulkAmqpError, OSError):
            return False
        return True
