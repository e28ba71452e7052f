"""Order in which the stages of a node start and end, and time limits of the end.

Start: the packer, and links into the site; once the packer has found where its predecessors ended,
the readers of the log: deliverer, links out, and the work beside them. End: packer (messages in
hand are logged and acknowledged) and deliverer (messages in flight are answered and committed),
links, the broker's mark, the ledger. The log ends after all of them, the state last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from dedup.journal.journal import SlotGone
from relay.node.housekeeping import Housekeeping
from relay.node.stages import Stages

log = logging.getLogger(__name__)

STAGES_WITHIN_S = 6.0
"""Time for what is in flight to be answered after a stop; the rest stays in doubt."""
LINKS_WITHIN_S = 1.0
"""Time for links to close their connections; the node does not wait longer."""
MARK_WITHIN_S = 1.0
THROUGH_WITHIN_S = 1.0
STOP_WITHIN_S = 7.5
"""Time for the whole end with the ledger's export; closing connections takes up to two seconds
more.
"""

Work = Coroutine[Any, Any, object]


class EndedBadly(Exception):
    """The node was to end and did, but not in order: `reason` has the failure. Its state is not
    marked clean; as after a kill, the next start resolves what is in doubt.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"did not end in order: {reason}; the next start goes on from there")
        self.reason = reason


def loss_of_state(error: Exception) -> SlotGone | None:
    """Return the loss of the node's state, if that is all of an error, or None."""
    if isinstance(error, ExceptionGroup):
        losses, others = error.split(SlotGone)
        if others is not None or losses is None:
            return None
        first = losses.exceptions[0]
        return loss_of_state(first) if isinstance(first, ExceptionGroup) else first
    return error if isinstance(error, SlotGone) else None


class StageTasks:
    """Tasks of one run of a site's node. None may end before the node is to end."""

    def __init__(self, site: str, ending: asyncio.Event) -> None:
        """`ending` is set when the node is to end."""
        self._site = site
        self._ending = ending
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._failures: dict[asyncio.Task[object], str] = {}
        self._loss: SlotGone | None = None
        """Loss of the state, while it is all that has failed."""
        self.is_in_order = True
        """True while no stage has failed, and none was cut short."""

    def begin(self, name: str, work: Work) -> None:
        """Run `work` beside the others."""
        self._tasks[name] = asyncio.create_task(work, name=f"{self._site}: {name}")

    def cancel(self, name: str) -> None:
        """End work that has no end."""
        self._tasks[name].cancel()

    async def until(self, step: Awaitable[object]) -> bool:
        """Wait for the step; return False if the node is to end first. Raises what a task
        raises.
        """
        waiting = asyncio.ensure_future(step)
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait(
                {waiting, ending, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in self._tasks.values():
                if task.done():
                    task.result()
                    raise RuntimeError(f"{task.get_name()} ended by itself")
            if waiting.done():
                waiting.result()
            return not self._ending.is_set()
        finally:
            waiting.cancel()
            ending.cancel()

    async def run(
        self,
        stages: Stages,
        beside: Callable[[], Mapping[str, Work]],
        reached: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Start in order, go on until the node is to end, and end in order. Raises what a task
        raises. `beside` returns further work by name, to run while the log is read; `reached` is
        called with "running" and "stopping"; `is_over` returns False if another run, here or at
        another node, goes on with the state at once, and so with the ledger.
        """
        before = set(self._tasks)  # the log's task, which ends last
        try:
            self.begin("packer", stages.packer.run())
            self.begin("exchange", self._connect(stages))
            self.begin("in", stages.links.run_receivers())
            if await self.until(stages.packer.decided()):
                self.begin("deliverer", stages.deliver())
                self.begin("out", stages.links.run_senders())
                self.begin("group", stages.group.run())
                self.begin("housekeeping", stages.housekeeping.run())
                for name, work in beside().items():
                    self.begin(name, work)
                reached("running")
                await self.until(self._ending.wait())
            reached("stopping")
            stages.packer.stop()
            stages.context.stopping.set()
            await self._wind_up(stages.housekeeping, closes_books=is_over())
        finally:
            begun = [task for name, task in self._tasks.items() if name not in before]
            for task in begun:
                task.cancel()
            await self._ended(begun)

    async def _connect(self, stages: Stages) -> None:
        """Take the deliverer's lock, which settles beside the packer's; but only after that, so
        that two nodes never wait for one lock of each other's.
        """
        await stages.packer.locked()
        await stages.deliverer.keep_connected()

    async def over(self) -> None:
        """Wait for all tasks, however they end."""
        await self._ended(list(self._tasks.values()))

    def raise_failures(self) -> None:
        """Raise EndedBadly if stages have ended with errors and `run` raised nothing, or SlotGone
        if each of them has only lost the state.
        """
        if self._loss is not None:
            raise self._loss
        if self._failures:
            raise EndedBadly("; ".join(self._failures.values()))

    async def _ended(self, tasks: list[asyncio.Task[object]]) -> None:
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for task, end in zip(tasks, ends, strict=True):
            if isinstance(end, Exception) and task not in self._failures:
                # The node stands by then, and says why in one line.
                loss = loss_of_state(end)
                if loss is None:
                    log.error(
                        "%s ended with an error",
                        task.get_name(),
                        exc_info=end,
                        extra={"event": "stage-failed", "site": self._site},
                    )
                self._loss = loss if self._loss is not None or not self._failures else None
                self._failures[task] = f"{task.get_name()}: {str(end) or repr(end)}"
                self.is_in_order = False

    async def _wind_up(self, housekeeping: Housekeeping, *, closes_books: bool) -> None:
        """End in order, as far as time allows; work left undone loses nothing."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        stages = self._begun("packer", "deliverer")
        if stages and (await asyncio.wait(stages, timeout=STAGES_WITHIN_S))[1]:
            self.is_in_order = False
        log.info(
            "%s: stages ended after %.1f s",
            self._site,
            loop.time() - began,
            extra={"event": "stages-ended", "site": self._site},
        )
        # Links write their last rows when they end, which must be before the export.
        links = self._begun("in", "out", "group")
        for task in links:
            task.cancel()
        if (await asyncio.wait(links, timeout=LINKS_WITHIN_S))[1]:
            self.is_in_order = False
        await housekeeping.mark.store(MARK_WITHIN_S)
        if not closes_books:
            return
        try:
            async with asyncio.timeout_at(began + STOP_WITHIN_S):
                await housekeeping.close_books(THROUGH_WITHIN_S)
        except TimeoutError:
            log.info(
                "%s: no time left to export the ledger: the next start does it",
                self._site,
                extra={"event": "ledger-export-postponed", "site": self._site},
            )

    def _begun(self, *names: str) -> list[asyncio.Task[object]]:
        return [self._tasks[name] for name in names if name in self._tasks]
