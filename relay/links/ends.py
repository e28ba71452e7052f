"""Changing set of link ends: each runs for as long as it is wanted in its present form.

An end whose change goes beyond what a running end can take up is stopped in order and replaced: its
successor begins only after the former has saved its position and given up its queue. Ends that a
change does not touch do not notice the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from federation.mesh import Link


class RunningEnd(Protocol):
    """End of a link that can be run: `LinkSenderTask` or `LinkReceiverTask`."""

    async def run(self) -> None:
        """Run until cancelled."""


End = TypeVar("End", bound=RunningEnd)


@dataclass(slots=True, eq=False)
class _Life(Generic[End]):
    """Life of one end, from being wanted until it has ended."""

    link: Link
    made_of: Hashable
    end: End | None = None
    task: asyncio.Task[None] | None = None
    is_over: bool = False
    """True once the link is no longer wanted."""


@dataclass(eq=False)
class LinkEnds(Generic[End]):
    """All ends of one kind at a site.

    `make` makes an end. `forget` is called when the end of an unwanted link has ended: state kept
    for such a link would be wrong if the link ever came back.
    """

    make: Callable[[Link], End]
    forget: Callable[[Link], None] = lambda link: None
    _lives: dict[str, _Life[End]] = field(default_factory=dict)
    _leaving: dict[str, set[asyncio.Task[None]]] = field(default_factory=dict)
    _group: asyncio.TaskGroup | None = None

    def __iter__(self) -> Iterator[tuple[Link, End]]:
        """Iterate over the present ends; one that waits for its predecessor's end is left out."""
        for life in self._lives.values():
            if life.end is not None:
                yield life.link, life.end

    @property
    def links(self) -> list[Link]:
        """Links that are wanted, in order."""
        return [life.link for life in self._lives.values()]

    @property
    def is_busy(self) -> bool:
        """True while an end is wanted, or has not ended yet."""
        return bool(self._lives) or any(self._leaving.values())

    def want(self, wanted: Mapping[Link, Hashable], resting: Collection[Link] = ()) -> None:
        """Replace the wanted links, each with the key of what its end is made of. Links that are
        `resting` do not run, and are not forgotten.
        """
        spared = {link.name for link in resting}
        by_name = {link.name: link for link in wanted}
        lives: dict[str, _Life[End]] = {}
        for name, former in self._lives.items():
            link = by_name.get(name)
            if link is not None and wanted[link] == former.made_of:
                former.link = link
                lives[name] = former
                continue
            former.is_over = link is None and name not in spared
            self._end(former)
        for link, made_of in wanted.items():
            if link.name not in lives:
                lives[link.name] = self._begin(_Life(link, made_of))
        self._lives = {link.name: lives[link.name] for link in wanted}

    async def run(self) -> None:
        """Run all ends until cancelled. Raises what an end raises."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for life in self._lives.values():
                    self._start(life)
                # The task goes on at a site without links in this direction, too.
                await asyncio.Event().wait()
            finally:
                # Ends wanted while these stop do not begin any more: nobody would stop them.
                self._group = None

    def _begin(self, life: _Life[End]) -> _Life[End]:
        if not self._leaving.get(life.link.name):
            life.end = self.make(life.link)
        if self._group is not None:
            self._start(life)
        return life

    def _start(self, life: _Life[End]) -> None:
        assert self._group is not None
        life.task = self._group.create_task(self._live(life), name=life.link.name)

    def _end(self, life: _Life[End]) -> None:
        task, name = life.task, life.link.name
        if task is None or task.done():
            if life.is_over:
                self.forget(life.link)
            return
        leaving = self._leaving.setdefault(name, set())
        leaving.add(task)
        task.add_done_callback(leaving.discard)
        task.cancel()

    async def _live(self, life: _Life[End]) -> None:
        former = {task for task in self._leaving.get(life.link.name, ()) if task is not life.task}
        if former:
            await asyncio.wait(former)
        if life.end is None:
            life.end = self.make(life.link)
        try:
            await life.end.run()
        finally:
            if life.is_over:
                self.forget(life.link)
