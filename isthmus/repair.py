"""Course of a repair: ask sites in turn to resend what others lack, and wait for arrivals."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from federation.mesh import Mesh
from federation.reachability import neighbours, reached_from
from isthmus.lost_messages import Lost
from isthmus.node_client import NodeAway, NodeClient, NodeSaysNo, SlotsElsewhere

NAMES_AT_ONCE = 200
POLL_S = 0.25
WARN_EVERY_S = 30.0
"""Seconds between warnings about another repair in the way."""


@dataclass
class RepairWork:
    """One repair and its results so far. Sites by name."""

    mesh: Mesh
    state: Path
    lost: list[Lost]
    sent: dict[str, list[Lost]] = field(default_factory=dict)
    """Messages by the site that has sent them (or could, in a dry run)."""
    irrecoverable: list[Lost] = field(default_factory=list)
    """Messages that no log has any more."""
    departed: list[Lost] = field(default_factory=list)
    """Messages whose destination left the mesh: not requested."""
    not_asked: list[Lost] = field(default_factory=list)
    """Messages that no answering site has while others could not be asked."""
    refused: list[tuple[Lost, str]] = field(default_factory=list)
    """Messages that a log has but may not send, with the remedy."""
    problems: dict[str, str] = field(default_factory=dict)
    """Reasons by site of failures to ask or finish."""
    batches: dict[str, set[str]] = field(default_factory=dict)
    """Repair batches under way by destination."""
    settled: dict[str, int] = field(default_factory=dict)
    """Counts of settled repair batches by destination."""
    waited: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Other repairs that this one waited for, by site: for whom (`for`), number of `messages`, age
    (`for_s`), and seconds waited (`seconds`).
    """
    by: str = field(default_factory=lambda: f"the `isthmus repair` of process {os.getpid()}")
    """Name of this repair, for others that wait."""
    warn: Callable[[str], None] = lambda line: None
    """Callback: report why the repair waits."""
    take_pieces: set[str] = field(default_factory=set)
    """Cluster IDs of destinations whose nodes assemble repaired big messages."""

    @cached_property
    def names(self) -> dict[str, str]:
        """Site names by cluster ID."""
        return Sources(self.mesh).names

    async def run(self, rate: float, say: Callable[[str], None], *, dry_run: bool) -> None:
        """Ask for all lost messages."""
        sources = Sources(self.mesh)
        if self.mesh.repairers is not None:
            few = ", ".join(self.mesh.repairers) or "no site"
            say(f"`repairs_from`: {few} may send again what others lack")
        await self._announce_repair(say, dry_run=dry_run)
        self.departed = [one for one in self.lost if one.destination not in sources.names]
        left = [one for one in self.lost if one.destination in sources.names]
        candidates = {one.place: sources.of(one) for one in left}
        while left:
            by_site: dict[str, list[Lost]] = {}
            for one in left:
                if site := next((s for s in candidates[one.place] if s not in self.problems), None):
                    by_site.setdefault(site, []).append(one)
                elif candidates[one.place]:
                    self.not_asked.append(one)
                else:
                    self.irrecoverable.append(one)
            left = []
            for site, wanted in by_site.items():
                say(f"asking {site} for {len(wanted):,} messages")
                sent, missing = await self._ask(site, wanted, rate, say, dry_run=dry_run)
                self.sent.setdefault(site, []).extend(sent)
                for one in missing:
                    candidates[one.place].remove(site)
                refused = [one for one, _ in self.refused]
                done = {one.place for one in [*sent, *missing, *refused]}
                left += missing + [one for one in wanted if one.place not in done]
        self.sent = {site: sent for site, sent in self.sent.items() if sent}

    async def _ask(
        self,
        site: str,
        wanted: list[Lost],
        rate: float,
        say: Callable[[str], None],
        *,
        dry_run: bool,
    ) -> tuple[list[Lost], list[Lost]]:
        """Ask one site; return the messages sent (or present) and those missing. Others were not
        reached.
        """
        by_place: dict[tuple[str, int], list[Lost]] = {}
        for one in wanted:
            by_place.setdefault((str(one.batch), one.entry), []).append(one)
        sent: list[Lost] = []
        missing: list[Lost] = []
        request = {
            "messages": [one.wanted().as_json() for one in wanted],
            "rate": rate,
            "dry_run": dry_run,
            "by": self.by,
            "take_pieces": sorted(self.take_pieces),
        }
        began, warned_at = time.monotonic(), -WARN_EVERY_S
        try:
            async for answer in NodeClient.of(self.state, site).post("repair", request):
                for batch, entry in answer.get("missing", ()):
                    missing += by_place.pop((batch, entry), [])
                if "refused" in answer:
                    batch, entry = answer["refused"]
                    some = by_place.pop((batch, entry), [])
                    to = answer["destinations"]
                    self.refused += [(one, answer["why"]) for one in some if one.destination in to]
                    # Other destinations still wait for an answer.
                    if others := [one for one in some if one.destination not in to]:
                        by_place[batch, entry] = others
                elif "waits_for" in answer:
                    waited_s = time.monotonic() - began
                    self.waited[site] = {
                        "for": answer["waits_for"],
                        "messages": answer["messages"],
                        "for_s": answer["for_s"],
                        "seconds": round(waited_s, 1),
                    }
                    if waited_s - warned_at >= WARN_EVERY_S:
                        warned_at = waited_s
                        self.warn(_held_up(site, self.waited[site]))
                elif "batch" in answer:
                    some = [
                        one
                        for batch, entry in answer["sent"]
                        for one in by_place.pop((batch, entry), [])
                    ]
                    sent += some
                    for destination in {one.destination for one in some}:
                        self._under_way(destination).add(answer["batch"])
                    say(f"{site} has sent {len(sent):,} of {len(wanted):,} messages")
                elif "looked_at" in answer:
                    say(f"{site} has looked at {answer['looked_at']:,} batches of its log")
        except (NodeAway, NodeSaysNo) as error:
            self.problems[site] = str(error)
            return sent, missing
        if dry_run:
            sent = [one for some in by_place.values() for one in some]
        return sent, missing

    async def _announce_repair(self, say: Callable[[str], None], *, dry_run: bool) -> None:
        """Announce the repair to destinations, which then search their ledgers once, beside
        delivery. A node that understands the announcement knows of repairs.
        """
        for cluster_id in sorted({one.destination for one in self.lost} & self.names.keys()):
            site = self.names[cluster_id]
            lacking = [] if dry_run else [o for o in self.lost if o.destination == cluster_id]
            request = {
                "identities": [one.identity.hex() for one in lacking],
                "since_ms": min((one.published_ms for one in lacking), default=0),
            }
            try:
                async for answer in NodeClient.of(self.state, site).post(
                    "repair/expected", request
                ):
                    if "for_s" in answer:
                        say(f"{site} looks through its ledger, for {answer['for_s']:.0f} s by now")
            except SlotsElsewhere:
                pass  # those that are here have searched, the others do at arrival
            except NodeAway:
                continue  # searched at arrival; the absence is reported where it matters
            except NodeSaysNo as error:
                self.warn(str(error))  # without its ledger's word nothing is delivered
            self.take_pieces.add(cluster_id)

    def _under_way(self, destination: str) -> set[str]:
        return self.batches.setdefault(self.names[destination], set())

    async def wait(self, within_s: float, say: Callable[[str], None]) -> None:
        """Wait until destinations have settled the repair batches, or no progress for `within_s`,
        recorded in `problems`.
        """
        moved_at = time.monotonic()
        while waiting := {
            site: names
            for site, names in self.batches.items()
            if names and site not in self.problems
        }:
            for site, names in waiting.items():
                before = len(names)
                try:
                    names &= await self._not_settled(site, names)
                except (NodeAway, NodeSaysNo) as error:
                    self.problems[site] = str(error)
                if len(names) < before:
                    self.settled[site] = self.settled.get(site, 0) + before - len(names)
                    moved_at = time.monotonic()
            count = sum(map(len, waiting.values()))
            say(f"{count:,} repair batches are on their way")
            if time.monotonic() - moved_at > within_s:
                for site, names in waiting.items():
                    if names:
                        self.problems.setdefault(
                            site,
                            f"{site}: {len(names)} repair batches have not arrived: they come when "
                            "its links and its node run, see `isthmus status`",
                        )
            elif count:
                await asyncio.sleep(POLL_S)

    async def _not_settled(self, site: str, names: set[str]) -> set[str]:
        client = NodeClient.of(self.state, site)
        found: set[str] = set()
        for some in _parts(sorted(names), NAMES_AT_ONCE):
            waiting = set(some)
            # Of several nodes each has settled the batches of its slots.
            async for answer in client.post("repair/settled", {"batches": some}):
                waiting &= set(answer["waiting"])
            found |= waiting
        return found

    async def write_ledgers(self) -> Mapping[str, str]:
        """Have all nodes of this machine write their ledgers; return failures by site."""
        failures: dict[str, str] = {}
        for site in self.mesh.sites:
            try:
                async for answer in NodeClient.of(self.state, site).post("ledger", {}):
                    if answer["failure"]:
                        failures[site] = f"{site}: {answer['failure']}"
            except (NodeAway, NodeSaysNo) as error:
                failures[site] = str(error)
        return failures

    def as_json(self) -> dict[str, Any]:
        return {
            "lost": len(self.lost),
            "sent": {site: len(sent) for site, sent in self.sent.items()},
            "irrecoverable": [_as_json(one) for one in self.irrecoverable],
            "departed": [_as_json(one) for one in self.departed],
            "not_asked": [_as_json(one) for one in self.not_asked],
            "refused": [_as_json(one) | {"why": why} for one, why in self.refused],
            "waited": self.waited,
            "under_way": {site: sorted(names) for site, names in self.batches.items() if names},
            "problems": self.problems,
        }


def _as_json(one: Lost) -> dict[str, Any]:
    return {
        "identity": one.identity.hex(),
        "origin": one.origin,
        "destination": one.destination,
        "exchange": one.exchange,
        "published": one.published,
        "batch": str(one.batch),
        "entry": one.entry,
    }


def _held_up(site: str, waited: Mapping[str, Any]) -> str:
    return (
        f"{site} is at work for {waited['for']}, on {waited['messages']:,} messages, for"
        f" {waited['for_s']:.0f} s by now: this repair waits for that one's end"
    )


def _parts(names: list[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(names), size):
        yield names[first : first + size]


def by_destination(lost: Iterable[Lost], names: Mapping[str, str]) -> dict[str, int]:
    """Count messages by the name of the lacking site."""
    found: dict[str, int] = {}
    for one in lost:
        site = names.get(one.destination, one.destination)
        found[site] = found.get(site, 0) + 1
    return found


class Sources:
    """Sites to ask for a lost message, in order, for one mesh; sites by name."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.names = {site.cluster_id: site.name for site in mesh.sites.values()}
        """Site names by cluster ID."""
        self._reached: dict[tuple[str, str], set[str]] = {}

    def of(self, lost: Lost) -> list[str]:
        """Return the sites from which a batch reaches the destination: the origin first, the
        destination last, whose log may have a message it failed to deliver.
        """
        destination = self.names.get(lost.destination)
        if destination is None:
            return []
        origin = self.names.get(lost.origin)

        def rank(site: str) -> int:
            return 0 if site == origin else 2 if site == destination else 1

        return sorted(
            (
                site
                for site in self._mesh.sites
                if destination == site
                or (
                    self._mesh.repairs_for_others(site)
                    and destination in self._from(site, lost.exchange)
                )
            ),
            key=rank,
        )

    def _from(self, site: str, exchange: str) -> set[str]:
        found = self._reached.get((site, exchange))
        if found is None:
            declared = self._mesh.exchanges.get(exchange)
            banned = set() if declared is None else set(declared.never_via)
            pairs = (
                (link.sender, link.receiver)
                for link in self._mesh.links
                if not {link.sender, link.receiver} & banned
            )
            found = reached_from(site, neighbours(pairs), self._mesh.rule)
            self._reached[site, exchange] = found
        return found
