"""A site on its way out of the mesh: what is still in the way, and when it receives no more. Pure.

In order: what its applications published leaves the egress queues; then its links into the site
end, so that nothing more comes that would have to be passed on; then what its log has goes to its
neighbours and into its own queues. It is drained when all of that is so for a few seconds. What
others address to it later waits with them, and is for nobody once the site is out of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federation.counted import counted

QUIET_LOOKS = 5
"""A second apart: what waits in egress queues is only counted every few seconds, four at most."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """How things are at a site that is to leave. Counts of messages; -1: nobody knows."""

    egress: int
    in_hand: int
    """Taken from egress and not acknowledged yet."""
    undelivered: int
    unsent: Mapping[str, int]
    """Neighbour -> what its log does not have yet of what it should."""
    appending: bool
    """Links into the site still run, or are about to end."""

    @property
    def waiting(self) -> list[str]:
        """What is in the way, in words; empty if nothing is."""
        said = []
        if self.egress < 0:
            said.append("how much waits in its egress queues is not known")
        elif self.egress:
            said.append(f"{counted(self.egress, 'message')} in its egress queues")
        if self.in_hand:
            said.append(f"{counted(self.in_hand, 'message')} on the way from egress into its log")
        if self.appending:
            said.append("links into it still run")
        if self.undelivered:
            said.append(f"{counted(self.undelivered, 'message')} of its log not delivered yet")
        said += [
            f"{counted(count, 'message')} that {neighbour} does not have yet"
            for neighbour, count in self.unsent.items()
            if count
        ]
        return said


@dataclass(frozen=True, slots=True)
class Leave:
    """`is_closed`: the site receives nothing any more. It stays so until it is to stay."""

    is_closed: bool = False
    waiting: tuple[str, ...] = ()
    quiet_looks: int = 0
    """So many looks in a row found nothing in the way."""

    @property
    def is_drained(self) -> bool:
        return self.quiet_looks >= QUIET_LOOKS

    def after(self, now: Leaving | None) -> Leave:
        """With a new look at the site; None: it is not to leave."""
        if now is None:
            return Leave()
        if not self.is_closed and now.egress == 0:
            return Leave(True, ("links into it are ending",))
        waiting = tuple(now.waiting)
        is_quiet = self.is_closed and not waiting
        return Leave(self.is_closed, waiting, self.quiet_looks + 1 if is_quiet else 0)
