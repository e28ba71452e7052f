"""Looks every two seconds whether an operator holds something else back at a site than before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from federation.durable_file import FileStamp
from relay import ticks
from relay.operator.holds import HOLDS_FILE, Holds, HoldsBroken, read_holds

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0


class HoldWatch:
    """One site's. What it cannot read changes nothing, and is said."""

    def __init__(self, folder: Path, every_s: float = LOOK_EVERY_S) -> None:
        self.problem = ""
        self.present = Holds()
        self._folder = folder
        self._file = folder / HOLDS_FILE
        self._every_s = every_s
        self._stamp: FileStamp | None = None

    def look(self) -> bool:
        """Read the file if it has changed; whether `present` is another."""
        stamp = FileStamp.of(self._file)
        if stamp == self._stamp:
            return False
        try:
            holds = read_holds(self._folder)
        except (HoldsBroken, OSError) as error:
            if str(error) != self.problem:
                log.error("%s", error)
            self.problem = str(error)
            return False
        self.problem, self._stamp = "", stamp
        before, self.present = self.present, holds
        return holds != before

    async def run(self, changed: Callable[[], None]) -> None:
        """For ever: call `changed` after each change of `present`."""
        while True:
            await asyncio.sleep(ticks.about(self._every_s, asyncio.get_running_loop().time()))
            if self.look():
                changed()
