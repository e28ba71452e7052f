"""Desk of the page: takes orders, logs them, and runs a few at a time."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Coroutine
from typing import Any

from isthmus.page.command_run import CommandUnfinished, run_command
from isthmus.page.order_log import LoggedOrder, OrderLog
from isthmus.page.orders import PlannedOrder

log = logging.getLogger(__name__)

MOST_AT_ONCE = 4
MOST_WAITING = 50
"""Orders that run or wait; more are refused."""


class TooManyOrders(Exception):
    """Too many orders run or wait: to be given again later."""


class OrderDesk:
    """Orders of one page. `changed` is called whenever the log has news."""

    def __init__(self, orders: OrderLog, changed: Callable[[], None]) -> None:
        self.orders = orders
        self._changed = changed
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    def give(self, who: str, kind: str, planned: PlannedOrder) -> LoggedOrder:
        """Log an order, and have it run. Raises TooManyOrders; OSError if it cannot be logged."""
        if len(self._running) >= MOST_WAITING:
            raise TooManyOrders(f"{MOST_WAITING} orders run or wait already: wait for some to end")
        command = shlex.join(["isthmus", *planned.words])
        begun = self.orders.begin(who, kind, command)
        log.warning("%s: %s", who, command)
        self._begin(self._run(begun, planned))
        self._changed()
        return begun

    async def close(self) -> None:
        """End the commands that run; the log says so."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, begun: LoggedOrder, planned: PlannedOrder) -> None:
        status, text = None, "the page ended before the order did: see what it has done so far"
        try:
            async with self._turns:
                result = await run_command(planned.words, planned.within_s)
            status, text = result.status, result.text
        except (CommandUnfinished, OSError) as error:
            text = str(error)
        finally:
            try:
                self.orders.end(begun, status, text)
            except OSError as error:
                log.error("%s: the end of order %s is not logged: %s", begun.who, begun.id, error)
            self._changed()
