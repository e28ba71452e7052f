"""Gatherer of what the page shows: asks all nodes, as `isthmus status` does, once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from federation.brokers.credentials import CredentialsError
from federation.durable_file import FileStamp
from federation.mesh import Mesh
from federation.mesh_file import read_mesh
from isthmus.page.history import Hour
from isthmus.page.view import CounterRates, changes, mesh_view
from isthmus.status import status_of

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
EMPTY: dict[str, Any] = {"sites": {}, "links": {}}
"""View of a reader who has none yet."""


@dataclass(slots=True)
class MeshOfFile:
    """Mesh of a file that may change, or become faulty while the page is open. `mesh` is the last
    that was good, or the last that the state folder knows.
    """

    file: Path
    state: Path
    mesh: Mesh
    problems: list[str] = field(default_factory=list)
    """Lines on the present file's mistakes."""
    _stamps: dict[Path, FileStamp | None] = field(default_factory=dict)

    def look(self) -> None:
        """Read the file again if it has changed."""
        if self._stamps and all(FileStamp.of(one) == was for one, was in self._stamps.items()):
            return
        # Before reading, so that a change meanwhile is seen by the next look.
        stamps = {one: FileStamp.of(one) for one in {self.file, *self._stamps}}
        reading = read_mesh(self.file)
        self._stamps = {one: stamps.get(one) for one in (reading.files or (self.file,))}
        self.problems = []
        if reading.mesh is not None:
            self.mesh = reading.mesh
        else:
            self.problems = [str(problem) for problem in reading.problems]
            self.problems.append(f"this page goes by revision {self.mesh.revision} until then")


class Gatherer:
    """Present view of the mesh for any number of readers, and the hour of figures behind it.

    `clock` is monotonic, `wall` is seconds since 1970.
    """

    def __init__(
        self, source: MeshOfFile, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.source = source
        self.hour = Hour()
        self.view: dict[str, Any] = EMPTY
        self._clock = clock
        self._wall = wall
        self._rates = CounterRates()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Look once a second, for ever."""
        while True:
            began = self._clock()
            await self.look()
            await asyncio.sleep(max(0.1, LOOK_EVERY_S - (self._clock() - began)))

    async def look(self) -> None:
        """Ask all nodes once, and wake the readers."""
        source = self.source
        try:
            # A mesh of hundreds of sites takes a second to read.
            await asyncio.to_thread(source.look)
            content = (await status_of(source.mesh, source.state)).content
            self._show(content)
        except (OSError, CredentialsError) as error:
            self._show_problem(f"the nodes cannot be asked: {error}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # Of a node of another version, say; the next look may be better.
            self._show_problem(f"a node's report cannot be read: {error!r}")
        self.view["at"] = round(self._wall(), 3)
        self.wake()

    def _show(self, content: dict[str, Any]) -> None:
        source = self.source
        names = {site.cluster_id: name for name, site in source.mesh.sites.items()}
        view = mesh_view(content, self._rates, self._clock(), lambda one: names.get(one, one))
        self.view = {**view, "problem": "", "notes": [*source.problems, *view["notes"]]}
        self.hour.note(self.view, self._wall())

    def _show_problem(self, problem: str) -> None:
        if self.view.get("problem") != problem:
            log.warning("%s", problem)
        self.view = {**self.view, "problem": problem}

    def wake(self) -> None:
        """Wake all readers."""
        self._news.set()
        self._news = asyncio.Event()

    async def read(self, outcomes: Callable[[], dict[str, str]]) -> AsyncIterator[dict[str, Any]]:
        """Yield what changes for one reader, the whole view first, with `orders` whenever
        `outcomes` gives others. A slow reader gets fewer, larger changes.
        """
        seen, orders = EMPTY, dict[str, str]()
        while True:
            news, view = self._news, self.view
            if view is not EMPTY:
                found = changes(seen, view)
                if (now := outcomes()) != orders:
                    found["orders"] = orders = now
                yield found
                seen = view
            await news.wait()
