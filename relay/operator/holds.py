"""Orders of an operator to hold a site or links of it, and the site's leave from the mesh.

holds.json   {"format": 1, "paused": false, "draining": false, "quiescing": false, "links": ["a-b"]}

Commands write the file into the folder of the node that runs the site, and the node obeys within
seconds, also after a restart. Where several nodes share the site's state, the file goes with the
state to the next one. A paused site
takes nothing from egress and delivers nothing; its links go on, so that transit is not held up. A
draining site goes on until its egress queues are empty; from then on nothing more is received, and
what the site has goes out. A quiescing site receives nothing and takes nothing from egress, where
applications go on publishing, and what the site has goes out.

drained      exists while the node finds nothing left in a draining site; written by the node, for
             commands after its end
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from federation import durable_file
from federation.durable_file import FileStamp
from federation.wording import counted
from relay import ticks

HOLDS_FILE = "holds.json"
DRAINED_FILE = "drained"
_FORMAT = 1


class HoldsBroken(Exception):
    """The file cannot be read. Remedy: delete it and give the orders again."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"{file}: {reason}; delete it and say again what is to be held")


@dataclass(frozen=True, slots=True)
class Holds:
    """Orders in force. `links` are names of links that begin at the site."""

    paused: bool = False
    draining: bool = False
    links: frozenset[str] = frozenset()
    quiescing: bool = False

    @property
    def takes_egress(self) -> bool:
        """True if the site takes what applications publish."""
        return not self.paused and not self.quiescing

    @property
    def empties(self) -> bool:
        """True if what the site has goes out, and nothing more comes in."""
        return self.draining or self.quiescing


def read_holds(folder: Path) -> Holds:
    """Orders for the site of this folder; none if there is no file. Raises HoldsBroken, OSError."""
    file = folder / HOLDS_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Holds()
    except ValueError as error:
        raise HoldsBroken(file, f"damaged: {error}") from error
    try:
        if content["format"] != _FORMAT:
            raise HoldsBroken(file, f"format {content['format']!r} is not known")
        links = frozenset(map(str, content["links"]))
        quiescing = bool(content.get("quiescing", False))  # not in files of earlier versions
        return Holds(bool(content["paused"]), bool(content["draining"]), links, quiescing)
    except (KeyError, TypeError) as error:
        raise HoldsBroken(file, f"damaged: {error!r}") from error


def write_holds(folder: Path, holds: Holds) -> None:
    """Replace the orders; on the disk on return. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "format": _FORMAT,
        "paused": holds.paused,
        "draining": holds.draining,
        "quiescing": holds.quiescing,
        "links": sorted(holds.links),
    }
    durable_file.write(folder / HOLDS_FILE, json.dumps(content, indent=1), durable=True)


def was_drained(folder: Path) -> bool:
    """True if the node of this folder found nothing left at its last look."""
    return (folder / DRAINED_FILE).exists()


def mark_drained(folder: Path, is_drained: bool) -> None:
    """Note in the folder that the site is drained, or is not any more. Raises OSError."""
    if is_drained:
        (folder / DRAINED_FILE).touch()
    else:
        (folder / DRAINED_FILE).unlink(missing_ok=True)


log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0


class HoldWatch:
    """Looks every two seconds for changed orders of one site. A file that cannot be read changes
    nothing; `problem` has the reason. `took_up` is called with the file after each reading.
    """

    def __init__(self, folder: Path, took_up: Callable[[Path], None] = lambda file: None) -> None:
        self._took_up = took_up
        self.is_kept = True
        """True if the present orders outlast the node, wherever its site goes on."""
        self.problem = ""
        self.present = Holds()
        self._folder = folder
        self._file = folder / HOLDS_FILE
        self._stamp: FileStamp | None = None

    def look(self) -> bool:
        """Read the file if changed; return True if `present` is another."""
        stamp = FileStamp.of(self._file)
        if stamp == self._stamp:
            return False
        try:
            holds = read_holds(self._folder)
        except (HoldsBroken, OSError) as error:
            if str(error) != self.problem:
                log.error("%s", error, extra={"event": "holds-unreadable"})
            self.problem = str(error)
            return False
        self.problem, self._stamp = "", stamp
        self._took_up(self._file)
        self.is_kept = False
        before, self.present = self.present, holds
        return holds != before

    async def run(self, changed: Callable[[], None], synced: Callable[[], Awaitable[None]]) -> None:
        """Call `changed` after each change of `present`, for ever, and then await `synced`: what
        `took_up` has written is kept then.
        """
        while True:
            if not self.is_kept:
                # No longer: an order may come that takes the former one back.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await synced()
                        self.is_kept = True
            await asyncio.sleep(ticks.about(LOOK_EVERY_S, asyncio.get_running_loop().time()))
            if self.look():
                changed()


QUIET_LOOKS = 5
"""Looks in a row, a second apart, without anything in the way: egress queues are counted only every
few seconds, four at most.
"""
QUIET_LOOKS_BESIDE_EGRESS = 2
"""Such looks where egress does not count."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """One look at a site that is to leave, or to be quiet. Counts of messages; -1 if unknown."""

    egress: int
    in_hand: int
    """Messages taken from egress and not acknowledged yet."""
    undelivered: int
    unsent: Mapping[str, int]
    """Neighbour -> messages that its log still lacks."""
    appending: bool
    """True while links into the site run, or are about to end."""
    keeps_egress: bool = False
    """True if the egress queues may keep what they have."""

    @property
    def waiting(self) -> list[str]:
        """Reasons why the site is not drained, in words; empty if there are none."""
        reasons = []
        egress = 0 if self.keeps_egress else self.egress
        if egress < 0:
            reasons.append("how much waits in its egress queues is not known")
        elif egress:
            reasons.append(f"{counted(egress, 'message')} in its egress queues")
        if self.in_hand:
            reasons.append(
                f"{counted(self.in_hand, 'message')} on the way from egress into its log"
            )
        if self.appending:
            reasons.append("links into it still run")
        if self.undelivered:
            reasons.append(f"{counted(self.undelivered, 'message')} of its log not delivered yet")
        reasons += [
            f"{counted(count, 'message')} that {neighbour} does not have yet"
            for neighbour, count in self.unsent.items()
            if count
        ]
        return reasons


@dataclass(frozen=True, slots=True)
class Leave:
    """Progress of a leave, or of a site that quiesces. `is_closed`: the site receives nothing more,
    until the order is withdrawn.

    In order: the applications' messages leave the egress queues; links into the site end, so that
    nothing comes any more that would have to be passed on; the log's messages go to the neighbours
    and into the site's own queues. The site is drained when all of that has been so for
    QUIET_LOOKS. Messages that others address to the site later wait with them, and are for nobody
    once the site is out of the mesh file.
    """

    is_closed: bool = False
    waiting: tuple[str, ...] = ()
    quiet_looks: int = 0
    """Number of the last looks in a row that found nothing in the way."""
    keeps_egress: bool = False
    """True if the site quiesces, and stays in the mesh."""

    @property
    def is_drained(self) -> bool:
        """True if the site has nothing that others need, its egress queues included."""
        return self.quiet_looks >= QUIET_LOOKS and not self.keeps_egress

    @property
    def is_quiesced(self) -> bool:
        """True if the site has nothing that others need, but for its egress queues."""
        return self.quiet_looks >= QUIET_LOOKS_BESIDE_EGRESS and self.keeps_egress

    def after(self, now: Leaving | None) -> Leave:
        """Progress after another look at the site; `now` is None if the site goes on as usual."""
        if now is None:
            return Leave()
        keeps = now.keeps_egress
        if keeps != self.keeps_egress:
            return Leave(keeps_egress=keeps).after(now)
        if not self.is_closed and (keeps or now.egress == 0):
            return Leave(True, ("links into it are ending",), keeps_egress=keeps)
        waiting = tuple(now.waiting)
        is_quiet = self.is_closed and not waiting
        return Leave(self.is_closed, waiting, self.quiet_looks + 1 if is_quiet else 0, keeps)
