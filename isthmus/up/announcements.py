"""Announcement of a changed mesh file to the supervisor of a state folder, if running.

The supervisor starts the processes of new sites and ends those of removed ones; other nodes watch
the file themselves.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

from federation.mesh import Mesh
from isthmus.up.supervision import Phase
from isthmus.up.supervisor_record import SupervisorRecord, read_record

TAKEN_UP_WITHIN_S = 60.0
"""Limit in seconds: ending a removed site's broker in order takes up to thirty."""
STARTED_WITHIN_S = 120.0
POLL_S = 0.1


class NotTakenUp(Exception):
    """The supervisor did not take up the file; the text gives reason and remedy."""


class FileUnusable(NotTakenUp):
    """The supervisor cannot run the file; the mesh goes on as before."""


def running_mesh(state: Path) -> SupervisorRecord | None:
    """Return the record of the running supervisor of the state folder, or None."""
    record = read_record(state)
    return record if record is not None and record.is_alive else None


async def notify_supervisor(
    file: Path, mesh: Mesh, state: Path, say: Callable[[str], None] = lambda line: None
) -> bool:
    """Have the supervisor take up the file; wait until all private brokers have been started.

    Returns False if no supervisor runs. Raises NotTakenUp.
    """
    record = running_mesh(state)
    if record is None:
        return False
    check_file(record, file, state)
    record = await _taken_up(record, state)
    private = [name for name, site in mesh.sites.items() if site.broker is None]
    waiting = _not_started(record, private)
    if waiting:
        say(f"starting the brokers of {', '.join(waiting)}")
        await _until(
            state,
            lambda record: not _not_started(record, private),
            STARTED_WITHIN_S,
            f"the brokers of {', '.join(waiting)} do not start: `isthmus status` says more",
        )
    return True


def check_file(record: SupervisorRecord, file: Path, state: Path) -> None:
    """Raise NotTakenUp if the supervisor runs another file's mesh."""
    if Path(record.file) != file.absolute():
        raise NotTakenUp(
            f"the mesh that runs in {state} (process {record.pid}) is that of {record.file}, not "
            f"of {file}: change that file, or use another --state"
        )


async def _taken_up(record: SupervisorRecord, state: Path) -> SupervisorRecord:
    """Have the supervisor look at its file; return its record from then. Raises NotTakenUp."""
    before = record.asked
    record.mark.send(signal.SIGHUP)
    record = await _until(
        state, lambda record: record.asked > before, TAKEN_UP_WITHIN_S, "no answer"
    )
    if record.file_problem:
        raise FileUnusable(f"the supervisor did not take up the file: {record.file_problem}")
    return record


async def until_nodes_ended(record: SupervisorRecord, mesh: Mesh, site: str, state: Path) -> None:
    """Have the supervisor look at its file and at the sites that rest; wait until none of its
    children is a node of a site. Raises NotTakenUp.
    """

    def has_none(record: SupervisorRecord) -> bool:
        return not record.has_node(site, mesh.sites)

    record = await _taken_up(record, state)
    # A look that was under way may have planned the nodes before.
    await _until(state, has_none, TAKEN_UP_WITHIN_S, f"nodes of {site} have not ended yet")


def _not_started(record: SupervisorRecord, sites: list[str]) -> list[str]:
    children = {site: record.child("broker", site) for site in sites}
    return [
        site for site, child in children.items() if not child or child.state != Phase.RUNNING.value
    ]


async def _until(
    state: Path, condition: Callable[[SupervisorRecord], bool], within_s: float, what: str
) -> SupervisorRecord:
    limit = time.monotonic() + within_s
    while True:
        record = running_mesh(state)
        if record is None:
            raise NotTakenUp("the supervisor has ended meanwhile")
        if condition(record):
            return record
        if time.monotonic() > limit:
            raise NotTakenUp(f"the supervisor (process {record.pid}): {what}")
        await asyncio.sleep(POLL_S)
