"""Tells the supervisor of a state folder, if one runs, that the mesh file has changed.

It starts what a new site needs and ends what a removed one had; nodes that stay see the file for
themselves.
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
"""Ending a removed site's broker in order takes up to thirty seconds."""
STARTED_WITHIN_S = 120.0
POLL_S = 0.1


class NotTakenUp(Exception):
    """The supervisor did not take up the file; the reason says why and what to do."""


def running_mesh(state: Path) -> SupervisorRecord | None:
    """The record of the supervisor that runs a mesh in this state folder."""
    record = read_record(state)
    return record if record is not None and record.is_alive else None


async def tell_supervisor(
    file: Path, mesh: Mesh, state: Path, say: Callable[[str], None] = lambda line: None
) -> bool:
    """Have it take up the file; wait until every private broker of the mesh has been started.
    False if no supervisor runs there. Raises NotTakenUp.
    """
    record = running_mesh(state)
    if record is None:
        return False
    if Path(record.file) != file.absolute():
        raise NotTakenUp(
            f"the mesh that runs in {state} (process {record.pid}) is that of {record.file}, not "
            f"of {file}: change that file, or use another --state"
        )
    before = record.asked
    record.mark.send(signal.SIGHUP)
    record = await _until(state, lambda told: told.asked > before, TAKEN_UP_WITHIN_S, "no answer")
    if record.file_problem:
        raise NotTakenUp(f"the supervisor did not take up the file: {record.file_problem}")
    private = [name for name, site in mesh.sites.items() if site.broker is None]
    waiting = _not_started(record, private)
    if waiting:
        say(f"starting the brokers of {', '.join(waiting)}")
        await _until(
            state,
            lambda told: not _not_started(told, private),
            STARTED_WITHIN_S,
            f"the brokers of {', '.join(waiting)} do not start: `isthmus status` says more",
        )
    return True


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
