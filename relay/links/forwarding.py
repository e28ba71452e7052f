"""Decision whether a batch goes to a neighbour. Pure; takes the unopened header alone.

A batch must not come back to a site that has had it, must not go to a site that may not hold its
exchange (`never_via`), and need not go where no site wants it or where all sites have joined since.
Batches that the neighbour already has are left to the link's logged set.

Each lane of a link runs as a link of its own between the same two logs, with its own session,
connections and position. Urgent batches so wait neither for the backlog before them in the log nor
for batches under way; and since all of a flow is in one lane, each lane remains a first in, first
out copy of its flows in the log, just as a link without lanes.

At sites with several slots each lane of a link runs as strands, a strand for each pair of slots.
All of an exchange, or of each of its partitions, is in one slot at either end, so each strand is
such a copy too.

Batches of a lane that the mesh file lacks (taken out, or known only to a newer file) go with the
normal lane, so that nothing goes nowhere; so do marks, which are of no lane. A canary goes over
every lane, to prove each alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from federation.lanes import NORMAL_NUMBER, lane_number
from federation.mesh import AckRule, Begins, ForwardingRule, Link, Mesh
from federation.partitions import lane_numbers, partition_of
from federation.slots import SlotMap
from relay.batches.batch import EVERY_SITE, BatchHeader, BatchKind, Series
from relay.ledger.members import Absent

LANE_NUMBERS = 256
FEW_SITES = 8


@dataclass(frozen=True, slots=True)
class LaneShare:
    """Lanes, by number, carried as one link lane. `only`: one lane, with its partitions; None: all
    but `others`.
    """

    only: frozenset[int] | None = None
    others: frozenset[int] = frozenset()

    def has(self, lane: int) -> bool:
        """Return True if batches of the lane are carried."""
        return lane not in self.others if self.only is None else lane in self.only

    def exceeds(self, former: LaneShare) -> bool:
        """Return True if some lane is carried here that the former share did not carry."""
        if self == former:
            return False
        return any(self.has(lane) and not former.has(lane) for lane in range(LANE_NUMBERS))


WHOLE = LaneShare()
"""Share of a link without lanes."""


def share_of(mesh: Mesh, link: Link) -> LaneShare:
    if link.lane:
        return LaneShare(_numbers_in_use(mesh, link.lane))
    others = [lane.name for lane in mesh.lanes if lane.number != NORMAL_NUMBER]
    numbers = frozenset().union(*(_numbers_in_use(mesh, name) for name in others))
    return LaneShare(None, numbers) if numbers else WHOLE


def _numbers_in_use(mesh: Mesh, lane: str) -> frozenset[int]:
    """Return the number of a lane, with those of its partitions where an exchange in that lane has
    any: a mesh without partitions has the shares of former versions.
    """
    number = lane_number(lane)
    is_cut = any(one.partitions > 1 and one.lane == number for one in mesh.exchanges.values())
    return lane_numbers(lane) if is_cut else frozenset({number})


class SlotShare(NamedTuple):
    """Exchanges, or partitions, of one slot of a neighbour, of which the strand into that slot
    carries batches.
    """

    slots: SlotMap
    slot: int

    def has(self, series: Series) -> bool:
        """Return True if batches of the series, which is of an exchange, are carried."""
        return self.slots.of(series.exchange, partition_of(series.lane)) == self.slot


def slot_share_of(mesh: Mesh, link: Link) -> SlotShare | None:
    if link.slots is None or mesh.sites[link.receiver].slots.is_whole:
        return None
    return SlotShare(mesh.sites[link.receiver].slots, link.slots.receiver)


class ForwardingDecision(StrEnum):
    """Decision to send a batch, or the reason for not sending it."""

    SEND = "send"
    ON_PATH = "on its path already"
    ONLY_THE_ORIGIN_SENDS = "only its origin sends"
    NOT_WANTED = "no destination that way"
    KEPT_OFF = "its exchange may not cross that site"
    OTHER_LANE = "in another lane"
    OTHER_SLOT = "in another slot of the neighbour"
    JOINED_SINCE = "packed before any site that way had joined"


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Filter by which a site passes batches on to a neighbour. All names are cluster IDs.

    `reachable` is every site that a batch handed to this neighbour can get to without coming back
    through `own`, the neighbour included. `sites` are all of the mesh.
    """

    rule: ForwardingRule
    own: str
    neighbour: str
    reachable: frozenset[str]
    sites: frozenset[str]
    kept_off: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Exchange -> sites reachable for it, where it may not cross some; empty: not the neighbour."""
    absent: Absent = field(default_factory=dict)
    """Revision -> sites that joined later, for which its batches to every site are not meant."""
    from_start: frozenset[str] = frozenset()
    """Sites that get batches to every site whenever they joined."""
    vouched: frozenset[str] = frozenset()
    """Exchanges whose own batches go to every neighbour, whatever their destinations: publishers
    wait until the log of a neighbour has them (`acks: remote`)."""
    lanes: LaneShare = WHOLE
    """Lanes carried here."""
    slot: SlotShare | None = None
    """Slot of the neighbour that is carried to; None: its only one."""

    def reach(self, exchange: str) -> frozenset[str]:
        """Return the sites reachable for a batch of the exchange by this neighbour."""
        return self.kept_off.get(exchange, self.reachable)

    def goes_for(self) -> tuple[str, ...] | None:
        """Return the sites for which batches may be carried, or None if there are too many."""
        if self.rule is ForwardingRule.COMPLETE:
            return (self.neighbour,)
        # Readers of the log wake in this order; that of a set differs from process to process.
        return tuple(sorted(self.reachable)) if len(self.reachable) <= FEW_SITES else None

    def sends(self, header: BatchHeader) -> bool:
        """Return True if the batch goes to the neighbour, as far as the header alone decides."""
        return self.decide(header) is ForwardingDecision.SEND

    def decide(self, header: BatchHeader) -> ForwardingDecision:
        path, series = header.path, header.name.series
        if self.neighbour in path:
            return ForwardingDecision.ON_PATH
        if header.kind is BatchKind.CANARY:
            # A canary goes from log to log over one link: the neighbours have their own.
            ours = series.origin == self.own
            return ForwardingDecision.SEND if ours else ForwardingDecision.ONLY_THE_ORIGIN_SENDS
        if self.lanes is not WHOLE and not self.lanes.has(series.lane):
            return ForwardingDecision.OTHER_LANE
        # A mark is of no exchange, and all slots that have its batches judge them by it.
        if self.slot is not None and series.exchange and not self.slot.has(series):
            return ForwardingDecision.OTHER_SLOT
        complete = self.rule is ForwardingRule.COMPLETE
        reachable = self.reachable
        # A mark is of no exchange.
        if self.kept_off and (found := self.kept_off.get(series.exchange)) is not None:
            if self.neighbour not in found:
                return ForwardingDecision.KEPT_OFF
            reachable = found
        if complete and series.origin != self.own:
            return ForwardingDecision.ONLY_THE_ORIGIN_SENDS
        destinations = series.destinations
        # A mark records where an incarnation ended: all sites that have its batches judge them by
        # the mark, even sites that joined since and began at the start.
        if destinations == EVERY_SITE and header.kind is BatchKind.MARK:
            return ForwardingDecision.SEND
        if destinations == EVERY_SITE:
            absent = self.absent.get(header.revision) if self.absent else None
            if not absent or (series.origin == self.own and series.exchange in self.vouched):
                return ForwardingDecision.SEND
            there = frozenset((self.neighbour,)) if complete else reachable
            return (
                ForwardingDecision.SEND
                if there - absent - {*path}
                else ForwardingDecision.JOINED_SINCE
            )
        if self.neighbour in destinations:
            return ForwardingDecision.SEND
        if not complete:
            for destination in destinations:
                if destination in reachable and destination not in path:
                    return ForwardingDecision.SEND
        return ForwardingDecision.NOT_WANTED


@dataclass(frozen=True, slots=True)
class FilterSeen:
    """Filter with which a link's position was reached, kept beside the position.

    `sites` are the cluster IDs of all revisions so far: a batch may name a site that has left.
    """

    rule: ForwardingRule
    own: str
    neighbour: str
    reachable: frozenset[str]
    sites: frozenset[str]
    kept_off: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lanes: LaneShare = WHOLE

    def after(self, now: Forwarding) -> FilterSeen:
        """Return the filter to keep once the link has gone through its log with `now`."""
        return replace(seen_with(now), sites=self.sites | now.sites)

    def stranded_by(self, now: Forwarding) -> bool:
        """Return True if batches skipped with this filter may be due with `now`.

        The position then means nothing. A site that was never in the mesh is in no batch's
        destinations, so a new site makes no link go through its log again, unless it begins at the
        start: sites that joined before may not have been sent what the new site is to get.
        """
        if (self.rule, self.own, self.neighbour) != (now.rule, now.own, now.neighbour):
            return True
        if now.lanes.exceeds(self.lanes):
            return True
        if not (now.reachable & self.sites) <= self.reachable:
            return True
        if (now.reachable & now.from_start) - self.sites:
            return True
        return any(
            not (now.reach(exchange) & self.sites) <= self.kept_off.get(exchange, self.reachable)
            for exchange in {*self.kept_off, *now.kept_off}
        )


def seen_with(now: Forwarding) -> FilterSeen:
    """Return the filter to keep for a link that begins."""
    return FilterSeen(
        now.rule, now.own, now.neighbour, now.reachable, now.sites, now.kept_off, now.lanes
    )


def forwarding_for(mesh: Mesh, link: Link, absent: Absent | None = None) -> Forwarding:
    """Return the filter for one of a mesh's links."""
    onward: dict[str, list[Link]] = {name: [] for name in mesh.sites}
    for other in mesh.links:
        onward[other.sender].append(other)
    cluster_ids = {name: site.cluster_id for name, site in mesh.sites.items()}

    def reachable(banned: Collection[str]) -> frozenset[str]:
        found = _reached(link, onward, banned)
        return frozenset(cluster_ids[name] for name in found)

    return Forwarding(
        mesh.rule,
        cluster_ids[link.sender],
        cluster_ids[link.receiver],
        reachable(()),
        frozenset(cluster_ids.values()),
        {
            exchange.name: reachable(frozenset(exchange.never_via))
            for exchange in mesh.exchanges.values()
            if exchange.never_via
        },
        absent or {},
        frozenset(site.cluster_id for site in mesh.sites.values() if site.begins is Begins.START),
        frozenset(
            exchange.name for exchange in mesh.exchanges.values() if exchange.acks is AckRule.REMOTE
        ),
        share_of(mesh, link),
        slot_share_of(mesh, link),
    )


def _reached(link: Link, onward: Mapping[str, list[Link]], banned: Collection[str]) -> set[str]:
    """Return the names of the sites behind the link, its receiver included, that are reached
    without crossing its sender or a banned site. A banned site is also crossed as the meeting
    broker of two others.
    """
    if link.receiver in banned or link.meeting in banned:
        return set()
    found = {link.receiver}
    queue = deque([link.receiver])
    while queue:
        for other in onward[queue.popleft()]:
            name = other.receiver
            if name in found or name == link.sender:
                continue
            if name not in banned and other.meeting not in banned:
                found.add(name)
                queue.append(name)
    return found
