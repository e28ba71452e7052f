"""Membership of a site in its mesh's multicast group: made from the mesh, and again when it
changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Protocol

from federation.group_key import GroupKeyUnusable, load_group_key
from federation.mesh import MulticastGroup
from federation.multicast import group_agreement, group_exchanges, group_sites
from federation.partitions import base_lane
from relay.batches.batch import EVERY_SITE, BatchHeader, BatchKind, BatchName
from relay.batches.incarnation import VoidTable
from relay.group.brought import BroughtBatches
from relay.group.datagram import OVERHEAD
from relay.group.group_task import GroupParts, GroupTask
from relay.group.settings import GroupSettings
from relay.ledger.batch_rows import linked_row
from relay.ledger.members import RevisionMembers
from relay.ledger.rows import Stage
from relay.log.writer import LogWriter
from relay.node.group_report import group_report
from relay.node.parts import NodeParts
from relay.state.node_state import Commit, NodeState
from relay.waiters import until_first_ends

log = logging.getLogger(__name__)

_KEYS_AGAIN_S = 10.0
"""Time between two looks for keys that could not be read."""


class HaveOtherwise(Protocol):
    """Way to inform senders of what has come otherwise: see `NodeLinks.have_otherwise`."""

    def __call__(self, names: Collection[BatchName], /, *, by_group: bool) -> None: ...


class SiteGroup:
    """Membership of one site, if its mesh has a group and the site is a member."""

    def __init__(
        self,
        parts: NodeParts,
        writer: LogWriter,
        state: NodeState,
        members: RevisionMembers,
        on_there: HaveOtherwise,
        brought: BroughtBatches,
        voids: VoidTable,
    ) -> None:
        """`on_there` is called with the names of batches that the group has brought, which
        `brought` counts beside those of the links.
        """
        self._brought = brought
        self._voids = voids
        self._on_there = on_there
        self._writer = writer
        self._state = state
        self._members = members
        self._parts = parts
        self._is_open = not parts.holds.quiescing
        self._is_member = False
        self._task: GroupTask | None = None
        self._tasks: list[GroupTask] = []
        """Present membership, and former ones while the log has not confirmed all they brought."""
        self._changed = asyncio.Event()
        self._away = ""

    def change(self, parts: NodeParts, *, receives: bool = True) -> None:
        """Be a member by another mesh file from now on; none unless the site `receives`, nor while
        the site quiesces: what is in its log goes out, and nothing more comes in.
        """
        former, was_open = self._parts, self._is_open
        self._parts, self._is_open = parts, receives and not parts.holds.quiescing
        if (_made_of(former), was_open) != (_made_of(parts), self._is_open):
            self._changed.set()

    @property
    def is_receiving(self) -> bool:
        """True while the group may still bring something into the log."""
        return self._is_member or any(task.appending_bytes for task in self._tasks)

    async def run(self) -> None:
        """Be a member for as long as the mesh file says so; go on for ever."""
        while True:
            self._changed.clear()
            await until_first_ends(
                asyncio.create_task(self._be_member(), name=f"{self._parts.site}: group"),
                asyncio.create_task(self._changed.wait()),
            )

    async def _be_member(self) -> None:
        parts, self._task = self._parts, None
        group = parts.mesh.group
        if group is None or parts.site not in group_sites(parts.mesh) or not self._is_open:
            self._away = ""
            await asyncio.Event().wait()
            return
        keys = await self._keys(parts, group)
        self._task = GroupTask(self._group_parts(parts, group, keys))
        self._tasks = [*(task for task in self._tasks if task.appending_bytes), self._task]
        self._is_member = True
        try:
            await self._task.run()
        finally:
            self._is_member = False

    async def _keys(self, parts: NodeParts, group: MulticastGroup) -> list[bytes]:
        """Wait for the group's keys, which may be put where they belong while the node runs."""
        while True:
            try:
                keys = [load_group_key(where, parts.book.environ) for where in group.keys]
            except GroupKeyUnusable as error:
                if str(error) != self._away:
                    log.error(
                        "%s: %s; links bring all",
                        parts.site,
                        error,
                        extra={"event": "group-key-unusable", "site": parts.site},
                    )
                self._away = str(error)
                await asyncio.sleep(_KEYS_AGAIN_S)
            else:
                self._away = ""
                return keys

    def _group_parts(
        self, parts: NodeParts, group: MulticastGroup, keys: Sequence[bytes]
    ) -> GroupParts:
        mesh, machine = parts.mesh, parts.machine
        lanes = {name: mesh.exchanges[name].lane for name in group_exchanges(mesh)}
        own = parts.cluster_id
        is_replayer = parts.site in group.replayers
        others = [mesh.sites[name].cluster_id for name in group_sites(mesh) if name != parts.site]

        def goes(header: BatchHeader) -> bool:
            # Of the exchange's own lane: messages that are sent again take another.
            series = header.name.series
            is_own_lane = lanes.get(series.exchange) == base_lane(series.lane)
            return header.kind is not BatchKind.CANARY and is_own_lane

        def takes(header: BatchHeader) -> bool:
            to = header.name.series.destinations
            return goes(header) and (to == EVERY_SITE or own in to or is_replayer)

        def on_linked(headers: Sequence[BatchHeader]) -> None:
            commit = Commit()
            now_ms = machine.clock.wall_ms()
            for header in headers:
                commit.row(linked_row(header, Stage.LINKED_IN, header.path[0], now_ms))
                self._brought.by_group(header.name.series.origin)
            self._state.write(commit)

        def on_there(name: BatchName, is_first: bool) -> None:
            # Of one that a link has brought first, too, if just now: the group is not much slower.
            if is_first or self._brought.is_just_linked(name, machine.clock.now()):
                self._on_there([name], by_group=True)

        return GroupParts(
            agreement=group_agreement(mesh),
            own=own,
            keys=keys,
            replayers=[mesh.sites[name].cluster_id for name in group.replayers],
            settings=GroupSettings(rate=group.rate, piece_bytes=group.mtu - OVERHEAD),
            open_carrier=partial(machine.join_group, group, mesh.sites[parts.site].multicast),
            writer=self._writer,
            sites=tuple(sorted(others)),
            formats=parts.formats,
            is_undecided=self._voids.is_undecided,
            is_void=self._voids.is_void,
            check=parts.authenticity().check,
            knows=self._members.knows,
            goes=goes,
            takes=takes,
            on_linked=on_linked,
            on_there=on_there,
            clock=machine.clock,
            random=machine.random.random,
            random_bytes=machine.random_bytes,
        )

    def report(self) -> dict[str, Any] | None:
        """Figures of the group for `isthmus status`; None where the site is no member."""
        if self._task is None:
            return {"away": self._away} if self._away else None
        parts = self._parts
        now = parts.machine.clock.now()
        return group_report(self._task, self._brought, parts.mesh, parts.site, now)


def _made_of(parts: NodeParts) -> object:
    """Return what a membership is made of."""
    mesh = parts.mesh
    return mesh.group, mesh.revision, parts.lately, parts.retired
