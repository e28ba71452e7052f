"""A set of link ends that changes while they run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from federation.mesh import Link
from relay.links.ends import LinkEnds
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

TO_B, TO_C = Link("a", "b", "b"), Link("a", "c", "c")


WITHIN_S = 10.0


class Ends:
    """Ends that take until `may_end` to end, as one does that has a connection to close."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.forgotten: list[str] = []
        self.fail = asyncio.Event()
        self.may_end = asyncio.Event()
        self.set: LinkEnds[_End] = LinkEnds(self._make, self._forget)

    def _make(self, link: Link) -> _End:
        self.made[link.name] += 1
        return _End(self, link.name)

    def _forget(self, link: Link) -> None:
        assert not self.running[link.name]
        self.forgotten.append(link.name)

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.set.run())
        await self.run_only(*(link.name for link in self.set.links))
        yield task
        self.may_end.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def run_only(self, *names: str) -> None:
        """Wait until one end of each of these runs, and no other."""
        await until(lambda: +self.running == Counter(names), lambda: str(self.running), WITHIN_S)


class _End:
    def __init__(self, ends: Ends, name: str) -> None:
        self._ends = ends
        self._name = name

    async def run(self) -> None:
        ends, name = self._ends, self._name
        ends.running[name] += 1
        ends.most[name] = max(ends.most[name], ends.running[name])
        try:
            await ends.fail.wait()
            raise ValueError("this end failed")
        finally:
            await ends.may_end.wait()
            ends.running[name] -= 1


@in_virtual_time
async def test_what_stays_as_it_is_does_not_notice() -> None:
    ends = Ends()
    ends.set.want({TO_B: 1})
    async with ends.alive():
        ends.set.want({TO_B: 1, TO_C: 1})
        await ends.run_only("a-b", "a-c")
        assert ends.made == {"a-b": 1, "a-c": 1}
        assert [link.name for link, _ in ends.set] == ["a-b", "a-c"]
        assert not ends.forgotten


@in_virtual_time
async def test_what_is_made_otherwise_begins_when_its_predecessor_has_ended() -> None:
    ends = Ends()
    ends.set.want({TO_B: 1})
    async with ends.alive():
        for made_of in range(2, 6):
            ends.set.want({TO_B: made_of})
            await let_pass(0.1)
            assert not list(ends.set)
        assert ends.set.links == [TO_B]
        ends.may_end.set()
        await until(lambda: list(ends.set), "its successor made", WITHIN_S)
        await ends.run_only("a-b")
        assert [link for link, _ in ends.set] == [TO_B]
        assert ends.most["a-b"] == ends.running["a-b"] == 1
        assert not ends.forgotten


@in_virtual_time
async def test_what_is_gone_is_forgotten_once_it_has_ended_and_may_come_back() -> None:
    ends = Ends()
    ends.set.want({TO_B: 1, TO_C: 1})
    async with ends.alive():
        ends.set.want({TO_C: 1})
        assert ends.set.is_busy
        await let_pass(0.5)
        assert not ends.forgotten
        ends.set.want({TO_B: 1, TO_C: 1})
        ends.may_end.set()
        await until(lambda: ends.made["a-b"] == 2, "it is back", WITHIN_S)
        await ends.run_only("a-b", "a-c")
        assert ends.forgotten == ["a-b"]
        ends.set.want({})
        await until(lambda: not ends.set.is_busy, "all ended", WITHIN_S)


@in_virtual_time
async def test_what_only_rests_is_not_forgotten() -> None:
    ends = Ends()
    ends.set.want({TO_B: 1})
    async with ends.alive():
        ends.set.want({}, resting=[TO_B])
        ends.may_end.set()
        await until(lambda: not ends.set.is_busy, "it has ended", WITHIN_S)
        assert not ends.running["a-b"]
        assert not ends.forgotten


@in_virtual_time
async def test_before_they_run_a_change_makes_them_anew() -> None:
    ends = Ends()
    ends.set.want({TO_B: 1, TO_C: 1})
    ends.set.want({TO_B: 2})
    assert ends.forgotten == ["a-c"]
    async with ends.alive():
        assert ends.running == {"a-b": 1}


@in_virtual_time
async def test_what_is_wanted_while_all_end_does_not_begin() -> None:
    ends = Ends()
    ends.set.want({TO_B: 1})
    async with ends.alive() as running:
        running.cancel()
        await let_pass(0.1)
        ends.set.want({TO_B: 1, TO_C: 1})
        ends.may_end.set()
        await asyncio.wait({running}, timeout=WITHIN_S)
        assert running.done()
        ends.set.want({TO_C: 1})
    assert ends.most == {"a-b": 1}
    assert ends.forgotten == ["a-b"]


@in_virtual_time
async def test_the_failure_of_one_is_the_failure_of_all() -> None:
    ends = Ends()
    ends.set.want({TO_B: 1, TO_C: 1})
    async with ends.alive() as task:
        ends.may_end.set()
        ends.fail.set()
        with pytest.raises(ExceptionGroup) as raised:
            await task
    assert raised.group_contains(ValueError, match="this end failed")
