"""Orders to hold back sites and links of this machine: commands write them, nodes obey."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from federation.mesh import Mesh
from isthmus.node_client import NodeAway, folder_that_runs, slot_folders_that_run
from isthmus.options import EXIT_FAULT, EXIT_USAGE, exit_with, site_or_exit
from isthmus.status import status_of
from relay.node.site_slots import worst_of
from relay.operator.holds import Holds, HoldsBroken, read_holds, write_holds

OBEYED_WITHIN_S = 10.0
_TRIES = 5
_NOT_YET = " as soon as its node runs"
_NOT_KEPT = "; the site's other nodes do not know yet, as the journal takes nothing"
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class HoldTarget:
    """Target of an order: a site, or a link that begins there."""

    site: str
    link: str = ""

    @property
    def name(self) -> str:
        return f"link {self.link}" if self.link else self.site

    def added_to(self, holds: Holds) -> Holds:
        """Return the holds with the target held back."""
        if self.link:
            return replace(holds, links=holds.links | {self.link})
        return replace(holds, paused=True)

    def taken_from(self, holds: Holds) -> Holds:
        """Return the holds without the target."""
        if self.link:
            return replace(holds, links=holds.links - {self.link})
        return replace(holds, paused=False, draining=False, quiescing=False)

    def state_in(self, content: dict[str, Any]) -> str:
        """Return the target's state in a status report, by the slots that run here."""
        if not self.link:
            part = content["sites"][self.site]
            return worst_of(slot["state"] for slot in part.get("slots", [part]))
        links = {f"{one['from']}-{one['to']}": one for one in content["links"]}
        return str(links[self.link]["state"])


def targets_or_exit(
    file: Path, mesh: Mesh, state: Path, sites: Sequence[str] | None, links: Sequence[str] | None
) -> list[HoldTarget]:
    """Return the targets named by options; end the command if none, unknown, or on another
    machine.
    """
    site_or_exit(file, mesh, *(sites or ()))
    senders = {link.name: link.sender for link in mesh.links}
    for link in links or ():
        if link not in senders:
            known = ", ".join(senders) or "none"
            exit_with(f"{file}: there is no link {link!r}; the mesh has {known}", EXIT_USAGE)
    targets = [HoldTarget(site) for site in sites or ()]
    targets += [HoldTarget(senders[link], link) for link in links or ()]
    if not targets:
        exit_with("say what: --site SITE or --link FROM-TO", EXIT_USAGE)
    for target in targets:
        here_or_exit(state, target.site)
    return targets


def here_or_exit(state: Path, site: str) -> Path:
    """Return the folder of a site whose node ran with the state folder; end the command if none."""
    folder = state / "sites" / site
    if not folder.is_dir():
        exit_with(
            f"{folder}: no node of {site} has run with this state folder: run the command where "
            "its node runs, or say which --state",
            EXIT_FAULT,
        )
    return folder


def running_folder_or_exit(state: Path, site: str) -> Path:
    """Return the folder of the node of a site that takes orders; end the command if none does."""
    here_or_exit(state, site)
    try:
        return asyncio.run(folder_that_runs(state, site))
    except NodeAway as error:
        exit_with(str(error), EXIT_FAULT)


def running_slots_or_exit(state: Path, site: str) -> tuple[list[Path], str]:
    """Return the folders of a site's slots, each of the node here that runs the slot, and why these
    are not all, empty if they are; end the command if there is none.
    """
    here_or_exit(state, site)
    try:
        return asyncio.run(slot_folders_that_run(state, site))
    except NodeAway as error:
        exit_with(str(error), EXIT_FAULT)


def hold(state: Path, site: str, change: Callable[[Holds], Holds]) -> None:
    """Change a site's holds; end the command if they cannot be written."""
    folder = running_folder_or_exit(state, site)
    for _ in range(_TRIES):
        try:
            before = read_holds(folder)
            if (after := change(before)) != before:
                write_holds(folder, after)
        except (HoldsBroken, OSError) as error:
            exit_with(str(error), EXIT_FAULT)
        # Another node may have taken the site over meanwhile, with the orders from before.
        former, folder = folder, running_folder_or_exit(state, site)
        if folder == former:
            return


async def until_obeyed(
    mesh: Mesh, state: Path, targets: Sequence[HoldTarget], *, is_held: bool
) -> dict[HoldTarget, str]:
    """Wait until the targets' states show the order, within a limit; return what is still to come
    of each, in words, empty for the obedient ones.
    """
    limit = time.monotonic() + OBEYED_WITHIN_S
    while True:
        content = (await status_of(mesh, state)).content
        words = {target: target.state_in(content) for target in targets}
        obeyed = {p for p, word in words.items() if (word in ("paused", "draining")) == is_held}
        # A node that is down obeys at its next start.
        running = {p for p, word in words.items() if word not in ("down", "stopped", "starting")}
        forgetful = {p for p in obeyed if not content["sites"][p.site].get("orders_kept", True)}
        if (running <= obeyed and not forgetful) or time.monotonic() > limit:
            return {
                p: _NOT_KEPT if p in forgetful else "" if p in obeyed & running else _NOT_YET
                for p in targets
            }
        await asyncio.sleep(POLL_S)
