"""Entries of a site in the ensemble, as one of the site's nodes reads and writes them.

nodes/NODE             the node is there
unfit/NODE             the node could not run a slot
slots/N/owner          the node should run slot N
slots/N/next           whom the last owner has given slot N to, as long as that one is there
slots/N/wanted         whom the owner gives slot N to once that one's copy has the journal's end
slots/N/copies/NODE    the node's copy of slot N has the end of the journal
slots/N/load           {"messages_s": 250}: what slot N handles, by the node that runs it or did

An entry has the ClusterMember that it is of, as JSON, but for `load`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace

from relay.cluster.coordination import Coordination, CoordinationEntry
from relay.cluster.slot_sharing import SiteView, SlotView
from relay.node.start import NodeStopped


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """Node as the others see it. `place` is equal for incarnations that cannot overlap, `run` is
    another one each time. `is_pinned` is of a slot's entry: an operator gave the slot to the node.
    `machine` and `version` say where the node runs, and which Isthmus; empty: not known.
    """

    node: str
    run: str
    place: str
    is_pinned: bool = False
    machine: str = ""
    version: str = ""

    def encoded(self) -> bytes:
        may_lack = ("is_pinned", "machine", "version")
        fields = {k: value for k, value in asdict(self).items() if value or k not in may_lack}
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def of(cls, entry: CoordinationEntry) -> ClusterMember:
        """Decode an entry; one that this version cannot read is of a node without a name."""
        try:
            fields = json.loads(entry.data)
            node, run, place = (str(fields[name]) for name in ("node", "run", "place"))
            machine, version = (str(fields.get(name, "")) for name in ("machine", "version"))
            return cls(node, run, place, bool(fields.get("is_pinned")), machine, version)
        except (ValueError, KeyError, TypeError):
            return cls("", "", "")


def _owner_path(slot: int) -> str:
    """Path of the entry of the node that should run a slot."""
    return f"slots/{slot}/owner"


def _next_path(slot: int) -> str:
    return f"slots/{slot}/next"


def _wanted_path(slot: int) -> str:
    return f"slots/{slot}/wanted"


def _copies_path(slot: int) -> str:
    return f"slots/{slot}/copies"


def _load_path(slot: int) -> str:
    return f"slots/{slot}/load"


def _messages_s(entry: CoordinationEntry | None) -> int | None:
    """Decode a slot's load; None where there is none, or this version cannot read it."""
    try:
        return None if entry is None else max(0, int(json.loads(entry.data)["messages_s"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


async def seen_site(coordination: Coordination, slots: int) -> SiteView:
    """Read all of a site's entries. Raises CoordinationAway, CoordinationRefused."""
    nodes, unfit, views = await asyncio.gather(
        coordination.names("nodes"),
        coordination.names("unfit"),
        asyncio.gather(*(_seen_slot(coordination, slot) for slot in range(slots))),
    )
    return SiteView(frozenset(nodes), dict(enumerate(views)), frozenset(unfit))


async def present_members(coordination: Coordination) -> dict[str, ClusterMember]:
    """Read the nodes of a site that are present, by name. Raises CoordinationAway,
    CoordinationRefused.
    """
    names = await coordination.names("nodes")
    entries = await asyncio.gather(*(coordination.read(f"nodes/{name}") for name in names))
    found = zip(names, entries, strict=True)
    return {name: ClusterMember.of(entry) for name, entry in found if entry is not None}


async def _seen_slot(coordination: Coordination, slot: int) -> SlotView:
    owner, after, wanted, load, copies = await asyncio.gather(
        coordination.read(_owner_path(slot)),
        coordination.read(_next_path(slot)),
        coordination.read(_wanted_path(slot)),
        coordination.read(_load_path(slot)),
        coordination.names(_copies_path(slot)),
    )
    of_owner = None if owner is None else ClusterMember.of(owner)
    return SlotView(
        owner="" if of_owner is None else of_owner.node,
        wished="" if after is None else ClusterMember.of(after).node,
        wanted="" if wanted is None else ClusterMember.of(wanted).node,
        is_pinned=of_owner is not None and of_owner.is_pinned,
        copies=frozenset(copies),
        messages_s=_messages_s(load),
    )


class SiteEntries:
    """Entries of a site of so many `slots`, of which `member` has its own. All slots of a process
    share the object. Every method may raise CoordinationAway and CoordinationRefused.
    """

    def __init__(
        self,
        coordination: Coordination,
        member: ClusterMember,
        slots: int,
        session_s: float,
        copies: int,
    ) -> None:
        """`session_s`: time after which the ensemble gives up a session that is silent. So many
        `copies` of each slot are kept, beside its owner's.
        """
        self._coordination = coordination
        self.member = member
        self.session_s = session_s
        self._slots = slots
        self._copies = copies
        self._presence = f"nodes/{member.node}"
        self._other_since: float | None = None
        """Time since which another machine's node has this node's name; None while none has."""
        self._view = SiteView()
        self._whole: SiteView | None = None
        """Last view without a free slot, or else the first view."""
        self._seen_at = float("-inf")
        self._changed_at = float("-inf")
        self._looking = asyncio.Lock()
        self._pinned: set[int] = set()
        """Slots of this node's that an operator gave it."""
        self._is_leaving = False
        self.is_fit = True
        """False while this node could not run a slot: it does not reach the site's broker."""
        self.is_cut_off = False
        """True once it has been unfit for so long that other nodes would be too, if they were."""
        self.look_if_fit: Callable[[], Awaitable[bool]] = _always_fit
        """Look now whether it could."""
        self.without_journal: set[int] = set()
        """Slots that this node stands by for, and whose journal does not answer it."""
        self._is_shown_unfit = False
        self._rates: dict[int, tuple[int, float]] = {}
        """Rates of slots, as their entries had them last, each with the time of the look."""
        self._rates_shown: dict[int, int | None] = {}
        """Rates that the entries have now."""
        self.giving: set[int] = set()
        """Slots of this node's that are to go to other nodes, and are ending."""

    @property
    def has_several_slots(self) -> bool:
        """True if the site's work is cut."""
        return self._slots > 1

    @property
    def is_steady(self) -> bool:
        """True once this node's session has lived for as long as one lives that is silent."""
        since = self._coordination.steady_since
        return since is not None and _now() - since >= self.session_s

    @property
    def is_name_in_use(self) -> bool:
        """True while another machine's node has this node's name."""
        return self._other_since is not None

    async def appear(self) -> None:
        """See to it that this node's name is the node's in the ensemble, unless the node leaves.
        Raises NodeStopped if the name is another machine's.
        """
        if self._is_leaving:
            return
        seen = await self._coordination.read(self._presence)
        if seen is not None:
            other = ClusterMember.of(seen)
            if other.run == self.member.run and seen.is_own:
                return
            if other.place != self.member.place:
                # Perhaps this machine before it was started anew: its session ends soon.
                if self._other_since is None:
                    self._other_since = _now()
                if _now() - self._other_since > 3 * self.session_s:
                    raise NodeStopped(
                        f"another machine runs a node of the name {self.member.node}: give each"
                        " of the site's nodes a name of its own"
                    )
                return
            await self._coordination.remove(self._presence)
        self._other_since = None
        await self._coordination.add(self._presence, self.member.encoded())

    async def show_fitness(self) -> None:
        """See to it that the others know whether this node could run a slot."""
        path = f"unfit/{self.member.node}"
        if self.without_journal or not self.is_fit:
            self._is_shown_unfit = True
            await self._coordination.add(path, self.member.encoded())
        elif self._is_shown_unfit:
            await self._coordination.remove(path)
            self._is_shown_unfit = False

    def stay(self) -> None:
        """Note that this node stands by for a slot, and so does not leave."""
        self._is_leaving = False

    async def leave(self) -> None:
        """Take this node's name away, so that others give it nothing while its slots end."""
        self._is_leaving = True
        await self._coordination.remove(self._presence)

    async def view(self, age_s: float) -> SiteView:
        """Return all entries of the site, as they were at most `age_s` ago."""
        async with self._looking:
            if _now() - self._seen_at > age_s:
                seen = await seen_site(self._coordination, self._slots)
                self._seen_at = _now()
                view = seen.with_rates(self._rates_of(seen))
                if (view.nodes, self._owners(view)) != (self._view.nodes, self._owners(self._view)):
                    self._changed_at = self._seen_at
                self._view = view
                if self._whole is None or not view.free:
                    self._whole = view
            return self._view

    def _rates_of(self, seen: SiteView) -> dict[int, int]:
        """Return what slots handle, also where the entry went a while ago with a session."""
        now = self._seen_at
        self._rates_shown = {slot: view.messages_s for slot, view in seen.slots.items()}
        for slot, rate in self._rates_shown.items():
            if rate is not None:
                self._rates[slot] = (rate, now)
        return {slot: rate for slot, (rate, at) in self._rates.items() if now - at < _RATES_AGE_S}

    async def taker(self, slot: int) -> str:
        """Return the node that should take a slot that nobody has; empty if there is none."""
        view = await self.view(_AGE_S)
        if view.slots[slot].owner:
            view = await self.view(0)  # from before the slot was free
        return view.takers(self._whole).get(slot, "")

    @staticmethod
    def _owners(view: SiteView) -> list[str]:
        return [one.owner for one in view.slots.values()]

    @property
    def unchanged_s(self) -> float:
        """Time for which no node has come or gone, and no slot has moved, as far as was seen."""
        return _now() - self._changed_at

    async def owner(self, slot: int) -> CoordinationEntry | None:
        """Read the entry of the node that should run a slot."""
        return await self._coordination.read(_owner_path(slot))

    async def owner_changed(self, slot: int, seen: CoordinationEntry | None) -> None:
        """Wait until that entry may be another than `seen`, or the connection has changed."""
        await self._coordination.changed(_owner_path(slot), seen)

    async def claim(self, slot: int) -> bool:
        """Add this node's entry of a slot; return False if there is an entry, whosever."""
        after = await self._coordination.read(_next_path(slot))
        if after is not None:
            wish = ClusterMember.of(after)
            if wish.node == self.member.node and wish.is_pinned:
                self._pinned.add(slot)
        entry = replace(self.member, is_pinned=slot in self._pinned)
        if not await self._coordination.add(_owner_path(slot), entry.encoded()):
            return False
        if after is not None:
            await self._coordination.remove(_next_path(slot))
        return True

    async def remove_owner(self, slot: int) -> None:
        """Remove the entry of whoever should run a slot."""
        await self._coordination.remove(_owner_path(slot))

    async def taker_beside(self, slot: int) -> str:
        """Return the other node that should take a slot of this node's; empty if there is none."""
        view = await self.view(_AGE_S)
        return view.without(self.member.node).takers().get(slot, "")

    async def wished(self, slot: int) -> str:
        """Return the node that the last owner gave a slot to; empty if there is none."""
        after = await self._coordination.read(_next_path(slot))
        return "" if after is None else ClusterMember.of(after).node

    async def give(self, slot: int, to: str, *, is_pinned: bool) -> None:
        """Remove this node's entry of a slot, for another node to take the slot."""
        self._pinned.discard(slot)
        await self.want(slot, "")
        await self._coordination.remove(_next_path(slot))
        if to:
            wish = ClusterMember(to, "", "", is_pinned)
            await self._coordination.add(_next_path(slot), wish.encoded())
        await self._coordination.remove(_owner_path(slot))

    async def want(self, slot: int, node: str) -> None:
        """Have a node follow the journal of a slot of this node's, to get the slot; empty: none."""
        path, wish = _wanted_path(slot), ClusterMember(node, "", "")
        seen = await self._coordination.read(path)
        if seen is not None and ClusterMember.of(seen) != wish:
            await self._coordination.remove(path)
        if node:
            await self._coordination.add(path, wish.encoded())

    async def show_load(self, slot: int, messages_s: int) -> None:
        """Show the other nodes what a slot of this node's handles, unless they see that."""
        await self.view(_KEEPERS_AGE_S)
        if self._rates_shown.get(slot) == messages_s:
            return
        await self._coordination.remove(_load_path(slot))
        await self._coordination.add(
            _load_path(slot), json.dumps({"messages_s": messages_s}).encode()
        )
        self._rates_shown[slot] = messages_s

    async def keeps_copy(self, slot: int) -> bool:
        """Return True if this node should follow the journal of a slot that it does not run."""
        view = await self.view(_KEEPERS_AGE_S)
        own = self.member.node
        return own in view.with_node(own).keepers(slot, self._copies)

    async def copy_is_warm(self, slot: int) -> None:
        """Note that this node's copy of a slot has the end of the journal."""
        path = f"{_copies_path(slot)}/{self.member.node}"
        await self._coordination.add(path, self.member.encoded())

    async def copy_ends(self, slot: int) -> None:
        """Note that this node's copy of a slot is behind, or that the node has the slot."""
        await self._coordination.remove(f"{_copies_path(slot)}/{self.member.node}")


async def _always_fit() -> bool:
    return True


_RATES_AGE_S = 120.0
"""Age of what a slot was said to handle, after which nothing is known."""
_KEEPERS_AGE_S = 5.0
"""Age of what is known of the entries when a copy is begun or left."""
_AGE_S = 0.2
"""Age of what is known of the entries when a slot is taken or given up."""


def _now() -> float:
    return asyncio.get_running_loop().time()
