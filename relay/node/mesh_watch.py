"""Watches the mesh file while a node runs: reads a changed file, reports a bad one.

The files are only asked for size and time, every two seconds; a change is read once the files have
stood still, since an editor may be half-way through writing. SIGHUP has them read at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import CredentialsError, PasswordMissing
from federation.durable_file import FileStamp
from federation.mesh import Mesh
from federation.mesh_file.problem import MeshFileError, Severity
from federation.wording import counted
from relay.waiters import set_within

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
STILL_FOR_S = 0.3

Stamp = dict[Path, FileStamp | None]
_NEVER_SEEN = FileStamp(0, 0, -1, 0, 0)


class MeshFiles(Protocol):
    """The mesh file, and whatever else defines the mesh and its addresses."""

    def files(self) -> Iterable[Path]:
        """Files to be read again when one of them changes."""
        ...

    def read(self) -> AddressBook:
        """Return the mesh with its addresses; called in a thread. Raises MeshFileError,
        AddressError, CredentialsError, PasswordMissing, OSError.
        """
        ...


class MeshWatch:
    """Watches until cancelled."""

    def __init__(
        self,
        files: MeshFiles,
        take_up: Callable[[AddressBook], None],
        refuse: Callable[[str], None],
        *,
        look_every_s: float = LOOK_EVERY_S,
        still_for_s: float = STILL_FOR_S,
    ) -> None:
        """`take_up` gets what was read, `refuse` the reason why there is nothing to take up. An
        OSError of `take_up` is such a reason, and the next look tries again.
        """
        self._files = files
        self._take_up = take_up
        self._refuse = refuse
        self._look_every_s = look_every_s
        self._still_for_s = still_for_s
        self._look_requested = asyncio.Event()

    def look_now(self) -> None:
        """Read the files, changed or not."""
        self._look_requested.set()

    async def run(self) -> None:
        """Look for ever. The first look reads in any case: a file may have changed since the
        process read it.
        """
        seen: Stamp | None = None
        while True:
            stamp = await asyncio.to_thread(self._stamp)
            if stamp != seen or self._look_requested.is_set():
                self._look_requested.clear()
                seen = await self._still(stamp)
                if await self._look():
                    # The mesh may have other files now. A file not stamped before it was read may
                    # have changed since, and is read once more.
                    now = await asyncio.to_thread(self._stamp)
                    seen = {file: seen.get(file, _NEVER_SEEN) for file in now}
                else:
                    seen = None
            await set_within(self._look_every_s, self._look_requested)

    async def _still(self, stamp: Stamp) -> Stamp:
        while True:
            await asyncio.sleep(self._still_for_s)
            again = await asyncio.to_thread(self._stamp)
            if again == stamp:
                return stamp
            stamp = again

    async def _look(self) -> bool:
        """Return True if nothing is left to do before the files change."""
        try:
            self._take_up(await asyncio.to_thread(self._files.read))
        except MeshFileError as error:
            self._refuse(_first_error(error))
        except (AddressError, CredentialsError, PasswordMissing) as error:
            self._refuse(str(error))
        except OSError as error:
            self._refuse(str(error))
            return False
        return True

    def _stamp(self) -> Stamp:
        return {file: FileStamp.of(file) for file in self._files.files()}


def _first_error(error: MeshFileError) -> str:
    """Text of the first error, and how many more there are."""
    errors = [problem for problem in error.problems if problem.severity is Severity.ERROR]
    more = f" (and {len(errors) - 1} more: `isthmus validate`)" if len(errors) > 1 else ""
    return f"{errors[0]}{more}"


def why_refused(now: Mesh, new: Mesh, site: str) -> str:
    """Reason why the node of `site` cannot take up the new mesh; empty if it can. Neither the name
    of the mesh, nor the site's own cluster ID, nor its slots may change: names, batches and states
    made so far follow from them.
    """
    if new.name != now.name:
        return (
            f"the file names the mesh {new.name!r}, this node runs {now.name!r}: a mesh cannot "
            "change its name; end it and begin another"
        )
    here = new.sites.get(site)
    if here is not None and here.cluster_id != now.sites[site].cluster_id:
        return (
            f"the file gives {site} the cluster ID {here.cluster_id!r}, its batches bear "
            f"{now.sites[site].cluster_id!r}: a site cannot change it; put the former back, or "
            "drain and remove the site and add it under another name"
        )
    if here is not None and here.slots != now.sites[site].slots:
        return (
            f"the file cuts {site} into other slots than its logs and states are of: put `slots` "
            "and `place` of the site back"
        )
    return why_not_cut(now, new, site)


def why_not_cut(now: Mesh, new: Mesh, site: str) -> str:
    """Return why a site of several slots cannot cut exchanges into other partitions; empty if it
    cuts none. The memory of identities shows no keys, so nobody knows which of it goes to which
    slot.
    """
    if any(site not in mesh.sites or mesh.sites[site].slots.is_whole for mesh in (now, new)):
        return ""
    for name, exchange in new.exchanges.items():
        former = now.exchanges.get(name)
        if former is None or former.partitions == exchange.partitions:
            continue
        if exchange.leaves(site) or exchange.reaches(site):
            return (
                f"the file cuts {name} into {counted(exchange.partitions, 'partition')}, its "
                f"messages at {site} are of {former.partitions}, in several slots: put the number "
                "back, or use an exchange of another name"
            )
    return ""


def why_over(new: Mesh, site: str, *, is_drained: bool) -> str:
    """Reason why the node of `site` has to end; empty if the node goes on."""
    if site in new.sites:
        return ""
    gone = f"{site} is no site of the mesh file any more (revision {new.revision})"
    if is_drained:
        return f"{gone}; it was drained: nobody lacks anything of it"
    return (
        f"{gone}, and it was not drained: what its egress queues and its log have for others is "
        "kept there, and goes on when the site is put back; then `isthmus drain` it first. Put it "
        "back with `from: start`, so that it gets what others publish meanwhile"
    )
