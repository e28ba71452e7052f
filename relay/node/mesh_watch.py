"""Watches the mesh file while a node runs: a changed one is read, a bad one said and not used.

The files are only asked for their size and time, every two seconds; a change is read once it has
stood still, since an editor may be half-way through writing. SIGHUP has it read at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import CredentialsError
from federation.brokers.passwords import PasswordMissing
from federation.durable_file import FileStamp
from federation.mesh_file.problems.problem import MeshFileError, Severity
from relay.waiters import set_within

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
STILL_FOR_S = 0.3

Stamp = dict[Path, FileStamp | None]
_NEVER_SEEN = FileStamp(0, 0, -1, 0, 0)


class MeshFiles(Protocol):
    """The mesh file, and whatever else says what the mesh is and where."""

    def files(self) -> Iterable[Path]:
        """Those whose change means that it has to be read again."""
        ...

    def read(self) -> AddressBook:
        """The mesh with its addresses; called in a thread. Raises MeshFileError, AddressError,
        CredentialsError, PasswordMissing, OSError.
        """
        ...


class MeshWatch:
    """`run` until cancelled."""

    def __init__(
        self,
        files: MeshFiles,
        take_up: Callable[[AddressBook], None],
        refuse: Callable[[str], None],
        *,
        look_every_s: float = LOOK_EVERY_S,
        still_for_s: float = STILL_FOR_S,
    ) -> None:
        """`take_up` gets what was read, `refuse` the reason why there is nothing to take up; if
        `take_up` raises OSError, that is the reason, and it is tried again at the next look.
        """
        self._files = files
        self._take_up = take_up
        self._refuse = refuse
        self._look_every_s = look_every_s
        self._still_for_s = still_for_s
        self._asked = asyncio.Event()

    def look_now(self) -> None:
        """Read, whether or not anything seems to have changed."""
        self._asked.set()

    async def run(self) -> None:
        """Look for ever. The first look reads in any case: something may have changed since the
        process read the file.
        """
        seen: Stamp | None = None
        while True:
            stamp = await asyncio.to_thread(self._stamp)
            if stamp != seen or self._asked.is_set():
                self._asked.clear()
                seen = await self._still(stamp)
                if await self._look():
                    # It may be made of other files now. One that was not looked at before it was
                    # read may have changed since: it is read once more.
                    now = await asyncio.to_thread(self._stamp)
                    seen = {file: seen.get(file, _NEVER_SEEN) for file in now}
                else:
                    seen = None
            await set_within(self._look_every_s, self._asked)

    async def _still(self, stamp: Stamp) -> Stamp:
        while True:
            await asyncio.sleep(self._still_for_s)
            again = await asyncio.to_thread(self._stamp)
            if again == stamp:
                return stamp
            stamp = again

    async def _look(self) -> bool:
        """Whether there is nothing more to be done before the files change."""
        try:
            self._take_up(await asyncio.to_thread(self._files.read))
        except MeshFileError as error:
            self._refuse(_told(error))
        except (AddressError, CredentialsError, PasswordMissing) as error:
            self._refuse(str(error))
        except OSError as error:
            self._refuse(str(error))
            return False
        return True

    def _stamp(self) -> Stamp:
        return {file: FileStamp.of(file) for file in self._files.files()}


def _told(error: MeshFileError) -> str:
    """The first error, and how many there are besides."""
    errors = [problem for problem in error.problems if problem.severity is Severity.ERROR]
    more = f" (and {len(errors) - 1} more: `isthmus validate`)" if len(errors) > 1 else ""
    return f"{errors[0]}{more}"
