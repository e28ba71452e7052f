"""Connecting to whichever of several addresses answers, in their order, without waiting for the
dead.

An address that refuses is passed over at once. A node that hangs accepts connections and stays
silent: after a head start the next address is tried beside it, and the first answer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

A = TypeVar("A", bound=Hashable)
C = TypeVar("C")

HEAD_START_S = 3.0
"""Head start of each address. Longer: slow lines log in at the first address. Shorter: a node that
hangs costs less.
"""


class NoneAnswered(Exception, Generic[A]):
    """No address could be connected to; `errors` has the error of each, in their order."""

    def __init__(self, errors: Mapping[A, Exception]) -> None:
        self.errors = errors
        super().__init__("; ".join(str(error) for error in errors.values()))


async def first_answer(
    addresses: Sequence[A],
    connect: Callable[[A], Awaitable[C]],
    drop: Callable[[C], None],
    failures: tuple[type[Exception], ...],
    head_start_s: float = HEAD_START_S,
) -> tuple[A, C]:
    """Return the first address at which `connect` succeeds, and the result of `connect`.

    `failures`: errors after which the next address is tried; any other is raised at once. `drop`
    gets each connection that came too late. Raises NoneAnswered.
    """
    race = _Race(connect, drop, failures)
    try:
        for address in addresses:
            race.start(address)
            if (answer := await race.answer(head_start_s)) is not None:
                return answer
        if (answer := await race.answer(None)) is not None:
            return answer
    finally:
        await race.end()
    raise NoneAnswered({address: race.errors[address] for address in addresses})


class _Race(Generic[A, C]):
    def __init__(
        self,
        connect: Callable[[A], Awaitable[C]],
        drop: Callable[[C], None],
        failures: tuple[type[Exception], ...],
    ) -> None:
        self.errors: dict[A, Exception] = {}
        self._connect = connect
        self._drop = drop
        self._failures = failures
        self._running: dict[asyncio.Task[C], A] = {}

    def start(self, address: A) -> None:
        async def connected() -> C:
            return await self._connect(address)

        self._running[asyncio.create_task(connected())] = address

    async def answer(self, within_s: float | None) -> tuple[A, C] | None:
        """Return the first connection, or None when all attempts have failed or time is over."""
        clock = asyncio.get_running_loop().time
        limit = None if within_s is None else clock() + within_s
        while self._running:
            left_s = None if limit is None else limit - clock()
            if left_s is not None and left_s <= 0:
                return None
            done, _ = await asyncio.wait(
                self._running, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in [running for running in self._running if running in done]:
                if (error := task.exception()) is None:
                    return self._running.pop(task), task.result()
                address = self._running.pop(task)
                if not isinstance(error, self._failures):
                    raise error
                self.errors[address] = error
        return None

    async def end(self) -> None:
        """Cancel the attempts; drop a connection that comes nevertheless."""
        pending = {task for task in self._running if not task.done()}
        for task in self._running:
            if task.done():
                self._drop_late(task)
            else:
                task.add_done_callback(self._drop_late)
                task.cancel()
        if pending:
            await asyncio.wait(pending)

    def _drop_late(self, task: asyncio.Task[C]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._drop(task.result())
