"""Sites whose slots a command changes: of one node, or of nodes that share their states."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import typer

from dedup.journal.journal import JournalAway
from dedup.store import StoreLocked
from federation.brokers.addresses import AddressBook
from isthmus.options import exit_without_cluster_parts
from relay.node.process import only_process
from relay.reslot.carried_memory import Progress
from relay.reslot.reslotting import ReslotRefused, Reslotting, change_under_way
from relay.reslot.slot_change import SlotChange

if TYPE_CHECKING:
    from relay.cluster.shared_reslotting import SharedReslotting

_POLL_S = 0.5
_REACHED_WITHIN_S = 30.0


class ReslotSite(Protocol):
    """Site whose slots are to be changed. All may raise ReslotRefused, StoreError, StateError,
    NodeStopped.
    """

    @property
    def nodes(self) -> str:
        """Noun for the site's nodes: its node, its nodes."""
        ...

    def find_change(self) -> SlotChange:
        """Return the change to make."""
        ...

    def is_under_way(self) -> bool:
        """Return True if the change was begun, and no node can run before its end."""
        ...

    def is_running(self) -> bool:
        """Return True if a node of the site runs."""
        ...

    async def has_ended(self) -> bool:
        """Return True if all nodes have ended, of one node only with nothing under way."""
        ...

    def until_ended(self) -> None:
        """Wait until all nodes have ended. Raises ReslotRefused if something was under way."""
        ...

    def check_ended(self) -> None:
        """Raise ReslotRefused if nodes that have ended are known to have left something under
        way.
        """
        ...

    def run(self, progress: Progress) -> int:
        """Make the change; return the number of keys that were moved."""
        ...


@dataclass(frozen=True, slots=True)
class SiteOfOneNode:
    """Site with one node, whose folder is here."""

    reslotting: Reslotting
    nodes: str = "its node"

    def find_change(self) -> SlotChange:
        return self.reslotting.change()

    def is_under_way(self) -> bool:
        return change_under_way(self.reslotting.folder) is not None

    def is_running(self) -> bool:
        try:
            with only_process(self.reslotting.folder):
                return False
        except StoreLocked:
            return True

    async def has_ended(self) -> bool:
        return self._has_ended_quiesced()

    def _has_ended_quiesced(self) -> bool:
        try:
            with only_process(self.reslotting.folder):
                return not self.reslotting.why_not_quiesced(self.find_change())
        except StoreLocked:
            return False

    def until_ended(self) -> None:
        while self.is_running():
            time.sleep(_POLL_S)
        self.check_ended()

    def check_ended(self) -> None:
        with only_process(self.reslotting.folder):
            if why := self.reslotting.why_not_quiesced(self.find_change()):
                raise ReslotRefused(why)

    def run(self, progress: Progress) -> int:
        async def run() -> int:
            try:
                return await self.reslotting.run(progress)
            finally:
                await self.reslotting.ledger_writers.close()

        with only_process(self.reslotting.folder):
            return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class SiteOfSharedStates:
    """Site whose nodes share their states, which move through the site's folder here."""

    reslotting: Reslotting
    book: AddressBook
    nodes: str = "its nodes"

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[SharedReslotting]:
        """Connect to the site's servers. Raises ReslotRefused, also for what they refuse to what is
        done inside.
        """
        site = self.reslotting.site
        try:
            from relay.cluster.coordination import CoordinationAway, CoordinationRefused
            from relay.cluster.moving import MoveRefused, until_connected
            from relay.cluster.shared_reslotting import SharedReslotting
            from relay.cluster.site_servers import SharedServers, cluster_of
        except ImportError as error:
            exit_without_cluster_parts(site, error)
        servers = SharedServers(cluster_of(self.book, site))
        try:
            try:
                async with asyncio.timeout(_REACHED_WITHIN_S):
                    await until_connected(servers)
            except TimeoutError:
                raise ReslotRefused(
                    f"ZooKeeper does not answer within {_REACHED_WITHIN_S:g} s"
                ) from None
            yield SharedReslotting(self.reslotting, servers, self._waits)
        except (CoordinationAway, CoordinationRefused, JournalAway, MoveRefused) as error:
            raise ReslotRefused(str(error)) from error
        finally:
            await servers.close()

    def _waits(self, reason: str) -> None:
        typer.echo(f"{self.reslotting.site}: {reason}", err=True)

    def find_change(self) -> SlotChange:
        async def find() -> SlotChange:
            async with self._connected() as shared:
                present = await shared.present()
                if present == self.reslotting.new and not await shared.is_under_way():
                    raise ReslotRefused(f"the site has {present} already")
                return SlotChange(present, self.reslotting.new)

        return asyncio.run(find())

    def is_under_way(self) -> bool:
        async def ask() -> bool:
            async with self._connected() as shared:
                return await shared.is_under_way()

        return asyncio.run(ask())

    def is_running(self) -> bool:
        async def ask() -> bool:
            async with self._connected() as shared:
                return bool(await shared.running())

        return asyncio.run(ask())

    async def has_ended(self) -> bool:
        async with self._connected() as shared:
            return not await shared.running()

    def check_ended(self) -> None:
        # The states say so once they have moved here.
        return

    def until_ended(self) -> None:
        async def wait() -> None:
            async with self._connected() as shared:
                while await shared.running():
                    await asyncio.sleep(_POLL_S)

        asyncio.run(wait())

    def run(self, progress: Progress) -> int:
        async def run() -> int:
            try:
                async with self._connected() as shared:
                    return await shared.run(progress)
            finally:
                await self.reslotting.ledger_writers.close()

        with only_process(self.reslotting.folder):
            return asyncio.run(run())


def reslot_site(reslotting: Reslotting, book: AddressBook) -> ReslotSite:
    """Return the site of a change, by its mesh."""
    if reslotting.mesh.sites[reslotting.site].nodes is None:
        return SiteOfOneNode(reslotting)
    return SiteOfSharedStates(reslotting, book)
