"""A node's first question: is its state folder the one that its site's broker remembers?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from relay.log.knowledge import UnknownRecord
from relay.log.site_log import SiteLog, SiteLogError
from relay.log.writer import LogWriter
from relay.node.deliverer_mark import reached
from relay.state.node_state import FIRST_MARK, Loaded, NodeState, StateVerdict, judge_state

T = TypeVar("T")

STATE_LOST_HINT = "`isthmus recover FILE --site SITE` rebuilds it from the site's log"
ASK_AGAIN_S = 0.5


class NodeStopped(Exception):
    """The node cannot go on, and no restart mends it. `reason` says what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def unreadable(error: UnknownRecord) -> str:
    """Why a node stops whose log another version of this program has written to."""
    return (
        f"this site's log has, at offset {error.offset}, {error.reason}: start the version of"
        " Isthmus that ran here before; nothing was taken from there on, and nothing is lost"
    )


async def begin_with(
    state: NodeState,
    loaded: Loaded,
    writer: LogWriter,
    folder: Path,
    say: Callable[[str], None],
    random_bytes: Callable[[int], bytes],
) -> None:
    """Begin to use the state in `folder`. `say` is told what is waited for, and nothing after.

    Raises NodeStopped where the folder is lost, or older than what the site has delivered.
    """
    mark = await _answer(writer, "asking the broker for its mark", lambda own: own.load_mark(), say)
    verdict = judge_state(not state.is_new, reached(loaded, state, writer), mark)
    if verdict is StateVerdict.LOST:
        raise NodeStopped(
            f"the state folder {folder} is empty, but this site has delivered messages before: "
            f"{STATE_LOST_HINT}"
        )
    if verdict is StateVerdict.OLDER_THAN_MARK:
        raise NodeStopped(
            f"the state folder {folder} is older than what this site has delivered (a restored "
            f"copy?): {STATE_LOST_HINT}"
        )
    state.begin(random_bytes(16))
    if mark is None:
        # Before anything is delivered: a folder that is lost from now on is known to be.
        await state.store.synced()
        await _answer(writer, "leaving a mark", lambda own: own.store_mark(FIRST_MARK), say)


async def _answer(
    writer: LogWriter,
    what: str,
    ask: Callable[[SiteLog], Awaitable[T]],
    say: Callable[[str], None],
) -> T:
    """Ask until there is an answer; meanwhile say what is being asked."""
    while True:
        try:
            answer = await ask(await writer.connected())
        except SiteLogError as error:
            say(f"{what}: {error}")
            await asyncio.sleep(ASK_AGAIN_S)
        else:
            say("")
            return answer
