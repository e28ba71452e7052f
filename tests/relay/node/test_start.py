"""What a node begins with: its folder, held against the mark that its broker remembers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from rstream import exceptions

from dedup.memory_store import MemoryStore
from relay.log.rabbit.stream_connection import NoOffset, log_errors
from relay.log.site_log import LogClosed, LogRefused, SiteLogError
from relay.log.writer import LogWriter
from relay.node.start import NodeStopped, begin_with
from relay.state.node_state import TABLES, NodeState
from tests.virtual_time import in_virtual_time

FOLDER = Path("state")


class AnsweringLog:
    """As much of a writer and its log as is asked for the mark: errors first, then the mark."""

    def __init__(self, errors: Sequence[SiteLogError], mark: int | None) -> None:
        self._errors = list(errors)
        self.mark = mark

    async def connected(self) -> AnsweringLog:
        return self

    async def load_mark(self) -> int | None:
        if self._errors:
            raise self._errors.pop(0)
        return self.mark

    async def store_mark(self, offset: int) -> None:
        self.mark = offset


async def begin(store: MemoryStore, log: AnsweringLog) -> list[str]:
    """What was said meanwhile."""
    said: list[str] = []
    state = NodeState(store)
    writer = cast(LogWriter, log)
    await begin_with(state, state.load(), writer, FOLDER, said.append, bytes)
    return said


def is_new(store: MemoryStore) -> bool:
    """Whether no node has begun with it."""
    state = NodeState(store)
    state.load()
    return state.is_new


@pytest.mark.parametrize(
    "error", [LogRefused("AccessRefused"), LogClosed("not available")], ids=["refused", "away"]
)
@in_virtual_time
async def test_an_error_is_not_taken_for_no_mark(error: SiteLogError) -> None:
    store = MemoryStore(TABLES)
    with pytest.raises(NodeStopped, match="has delivered messages before"):
        await begin(store, AnsweringLog([error] * 3, mark=7))
    assert is_new(store)


@in_virtual_time
async def test_without_a_mark_a_site_begins_and_leaves_one() -> None:
    store, log = MemoryStore(TABLES), AnsweringLog([LogClosed("not available")], mark=None)
    said = await begin(store, log)
    assert "not available" in said[0]
    assert not is_new(store)
    assert log.mark is not None


ANSWERS: list[type[exceptions.ServerError]] = sorted(
    {
        one
        for one in vars(exceptions).values()
        if isinstance(one, type) and issubclass(one, exceptions.ServerError)
    },
    key=str,
)


@pytest.mark.parametrize("error", ANSWERS)
def test_only_the_brokers_own_no_offset_is_none(error: type[exceptions.ServerError]) -> None:
    with pytest.raises(SiteLogError) as told, log_errors("log"):
        raise error
    assert isinstance(told.value, NoOffset) is (error is exceptions.OffsetNotFound)
