"""Sharing of a site's slots among its nodes. Pure.

Each node finds the same from the same entries, and acts for itself alone: a free slot is taken by
the node that has the fewest, and the node with the most load gives one slot at a time away as long
as that gains enough. The load of a node is that of its slots: for each the messages a second that
are handled, and IDLE_LOAD more, so that slots with little to do are shared by their number. A few
nodes follow a slot's journal, and keep a copy of its state; who gets a slot to balance follows it
first. Nobody decides for all, so nobody has to be elected, or missed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

IDLE_LOAD = 1000
"""Load of a slot that handles nothing, in messages a second: loads below matter to no node, and a
slot more is a journal, links and queues more.
"""
_SPARE, _PART = IDLE_LOAD // 2, 10
"""Load by which a node exceeds another and a slot together, if the slot is to move there: at least
this, and this part of the node's. Loads are measured, and so never quite even.
"""


@dataclass(frozen=True, slots=True)
class SlotView:
    """Slot as the site's entries show it."""

    owner: str = ""
    """Node that has the slot's entry; empty: nobody."""
    wished: str = ""
    """Node that the last owner gave the slot to; empty: nobody."""
    wanted: str = ""
    """Node that gets the slot from its owner once its copy has the journal's end; empty: none."""
    is_pinned: bool = False
    """True if an operator gave the slot to its owner: it is not moved to balance."""
    copies: frozenset[str] = frozenset()
    """Nodes whose copies have the end of the journal."""
    messages_s: int | None = None
    """Messages a second that the slot handles; None while nobody has measured them."""

    @property
    def load(self) -> int:
        """Load of the node that runs the slot, by this slot."""
        return IDLE_LOAD + (self.messages_s or 0)


@dataclass(frozen=True, slots=True)
class SiteView:
    """Nodes and slots of a site, as its entries show them at one time."""

    nodes: frozenset[str] = frozenset()
    """Nodes that are present, but those that leave."""
    slots: Mapping[int, SlotView] = field(default_factory=dict)
    unfit: frozenset[str] = frozenset()
    """Nodes that could not run a slot: they do not reach the site's broker or the journal."""

    @property
    def fit(self) -> frozenset[str]:
        """Present nodes that could run a slot; all that are present, if none could."""
        return self.nodes - self.unfit or self.nodes

    @property
    def free(self) -> list[int]:
        """Slots of which no present node is the owner."""
        return [slot for slot, view in sorted(self.slots.items()) if view.owner not in self.nodes]

    def without(self, node: str) -> SiteView:
        """Return the same as if a node were not there."""
        return SiteView(self.nodes - {node}, self.slots, self.unfit)

    def with_node(self, node: str) -> SiteView:
        """Return the same as if a node were there, which has not appeared yet."""
        return SiteView(self.nodes | {node}, self.slots, self.unfit)

    def with_rates(self, known: Mapping[int, int]) -> SiteView:
        """Return the same with what slots are known to handle, in messages a second, where no entry
        says so.
        """
        slots = {
            slot: replace(view, messages_s=known.get(slot)) if view.messages_s is None else view
            for slot, view in self.slots.items()
        }
        return SiteView(self.nodes, slots, self.unfit)

    def takers(self, before: SiteView | None = None) -> dict[int, str]:
        """Return, by free slot, the node that should take the slot; none if no node is present.
        `before` is a view from before slots became free: all nodes then find the same, however many
        of these slots have been taken meanwhile.
        """
        slots = self.slots if before is None else before.slots
        wished = {slot: one.wished for slot, one in self.slots.items() if one.wished in self.nodes}
        counts = Counter(one.owner for one in slots.values() if one.owner in self.nodes)
        takers: dict[int, str] = {}
        if not self.nodes:
            return takers
        free = set(self.free)
        for slot, one in sorted(slots.items()):
            if one.owner in self.nodes and slot not in free:
                continue
            now = self.slots[slot]
            taker = wished.get(slot) if slot in free else now.owner
            if taker is None:
                # A copy that lags has to be read first, which may take minutes. By numbers, which
                # all nodes see alike: they do not learn of loads at the same moment.
                able = now.copies & self.fit or self.fit
                taker = min(able, key=lambda node: (counts[node], -_weight(slot, node)))
            counts[taker] += 1
            if slot in free:
                takers[slot] = taker
        return takers

    def to_give(self, node: str) -> tuple[int, str] | None:
        """Return a slot that `node` should give away now, and to whom. None while slots are free,
        while it is another node's turn to give, and where all have the same load, or nearly.
        """
        move = self._move(only_to_copies=True)
        return move if move is not None and self.slots[move[0]].owner == node else None

    def keepers(self, slot: int, copies: int) -> frozenset[str]:
        """Return the nodes that should follow the slot's journal: so many `copies` beside the
        owner, of those that could run it, and a node to which the slot is to go, by an operator's
        order or to balance.
        """
        view = self.slots[slot]
        others = sorted(self.fit - {view.owner}, key=lambda node: _weight(slot, node), reverse=True)
        found = {*others[:copies], view.wanted} & self.nodes
        if len(others) > copies and self._move(only_to_copies=True) is None:
            move = self._move(only_to_copies=False)
            if move is not None and move[0] == slot:
                found.add(move[1])
        return frozenset(found)

    def _move(self, *, only_to_copies: bool) -> tuple[int, str] | None:
        """Return the slot that should move next to balance, and to whom; None if all is even."""
        if self.free:
            return None
        loads = self._loads()
        # One gives at a time: of those with the most that can the last by name.
        for giver in sorted(self.nodes, key=lambda one: (loads[one], one), reverse=True):
            choices = [
                (-min(view.load, spare), loads[to], -_weight(slot, to), slot, to)
                for slot, view in self.slots.items()
                if view.owner == giver and not view.is_pinned
                for to in (view.copies & self.fit if only_to_copies else self.fit)
                if (spare := loads[giver] - loads[to] - view.load)
                >= max(_SPARE, loads[giver] // _PART)
            ]
            if choices:
                *_, slot, to = min(choices)
                return slot, to
        return None

    def evens_numbers(self, slot: int, to: str) -> bool:
        """Return True if a slot's move to a node evens the numbers of slots out, whatever they
        handle.
        """
        counts = Counter(view.owner for view in self.slots.values())
        return counts[self.slots[slot].owner] - counts[to] >= 2

    def to_give_up(self, node: str) -> tuple[int, str] | None:
        """Return a slot that `node`, which cannot run it, should give to another that can, and to
        whom; None if there is no other.
        """
        if self.free:
            return None
        loads = self._loads()
        choices = [
            (loads[to], -_weight(slot, to), slot, to)
            for slot, view in self.slots.items()
            if view.owner == node
            for to in view.copies & self.fit - {node}
        ]
        return min(choices)[2:] if choices else None

    def _loads(self) -> Counter[str]:
        """Return the load of each present node that has slots."""
        loads: Counter[str] = Counter()
        for view in self.slots.values():
            if view.owner in self.nodes:
                loads[view.owner] += view.load
        return loads


def _weight(slot: int, node: str) -> int:
    """Weight of a node for a slot, by which ties are broken: another order for each slot."""
    digest = hashlib.blake2b(f"{slot}\0{node}".encode(), digest_size=8).digest()
    return int.from_bytes(digest)
