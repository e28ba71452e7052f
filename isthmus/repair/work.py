"""Has the sites send what others lack: asks one after the other, and waits for what was sent."""

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
from isthmus.node_client import NodeAway, NodeClient, NodeSaysNo
from isthmus.repair.lost import Lost
from isthmus.repair.sources import Sources

NAMES_AT_ONCE = 200
POLL_S = 0.25
WARN_EVERY_S = 30.0
"""Of a repair that is waited for."""


@dataclass
class RepairWork:
    """One repair, and what has come of it so far. Sites by name."""

    mesh: Mesh
    state: Path
    lost: list[Lost]
    sent: dict[str, list[Lost]] = field(default_factory=dict)
    """By the site that has, or (looked for only) could have, sent them."""
    irrecoverable: list[Lost] = field(default_factory=list)
    """No log has them any more."""
    departed: list[Lost] = field(default_factory=list)
    """Their destination is not in the mesh any more: nobody is asked."""
    not_asked: list[Lost] = field(default_factory=list)
    """Nobody who was asked has them, and not everybody could be asked."""
    refused: list[tuple[Lost, str]] = field(default_factory=list)
    """A log has them, and they may not be sent: what to do."""
    problems: dict[str, str] = field(default_factory=dict)
    """By site, why it could not be asked, or did not finish."""
    batches: dict[str, set[str]] = field(default_factory=dict)
    """By destination: repair batches that are under way."""
    settled: dict[str, int] = field(default_factory=dict)
    """By destination: repair batches that it is done with."""
    waited: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By site that is, or was, at work for another repair: for whom (`for`), on how many
    `messages`, since when (`for_s`), and how long this one has waited (`seconds`)."""
    by: str = field(default_factory=lambda: f"the `isthmus repair` of process {os.getpid()}")
    """Who repairs, for those that wait meanwhile."""
    warn: Callable[[str], None] = lambda said: None
    """Told what holds it up."""
    take_pieces: set[str] = field(default_factory=set)
    """Cluster IDs of destinations whose nodes are known to put repaired big messages together."""

    @cached_property
    def names(self) -> dict[str, str]:
        """Cluster ID -> name."""
        return Sources(self.mesh).names

    async def run(self, rate: float, say: Callable[[str], None], *, dry_run: bool) -> None:
        """Ask for everything that was lost."""
        sources = Sources(self.mesh)
        if self.mesh.repairers is not None:
            few = ", ".join(self.mesh.repairers) or "no site"
            say(f"`repairs_from`: {few} may send again what others lack")
        await self._tell_destinations(say, dry_run=dry_run)
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
        """What it sent, or has; and what it does not have. The rest, it did not come to."""
        by_place: dict[tuple[str, int], list[Lost]] = {}
        for one in wanted:
            by_place.setdefault((str(one.batch), one.entry), []).append(one)
        sent: list[Lost] = []
        missing: list[Lost] = []
        asked = {
            "messages": [one.wanted().as_json() for one in wanted],
            "rate": rate,
            "dry_run": dry_run,
            "by": self.by,
            "take_pieces": sorted(self.take_pieces),
        }
        began, warned_at = time.monotonic(), -WARN_EVERY_S
        try:
            async for told in NodeClient.of(self.state, site).post("repair", asked):
                for batch, entry in told.get("missing", ()):
                    missing += by_place.pop((batch, entry), [])
                if "refused" in told:
                    batch, entry = told["refused"]
                    some = by_place.pop((batch, entry), [])
                    to = told["destinations"]
                    self.refused += [(one, told["why"]) for one in some if one.destination in to]
                    # Those that it is not refused to are still to be told of.
                    if others := [one for one in some if one.destination not in to]:
                        by_place[batch, entry] = others
                elif "waits_for" in told:
                    waited_s = time.monotonic() - began
                    self.waited[site] = {
                        "for": told["waits_for"],
                        "messages": told["messages"],
                        "for_s": told["for_s"],
                        "seconds": round(waited_s, 1),
                    }
                    if waited_s - warned_at >= WARN_EVERY_S:
                        warned_at = waited_s
                        self.warn(_held_up(site, self.waited[site]))
                elif "batch" in told:
                    some = [
                        one
                        for batch, entry in told["sent"]
                        for one in by_place.pop((batch, entry), [])
                    ]
                    sent += some
                    for destination in {one.destination for one in some}:
                        self._under_way(destination).add(told["batch"])
                    say(f"{site} has sent {len(sent):,} of {len(wanted):,} messages")
                elif "looked_at" in told:
                    say(f"{site} has looked at {told['looked_at']:,} batches of its log")
        except (NodeAway, NodeSaysNo) as error:
            self.problems[site] = str(error)
            return sent, missing
        if dry_run:
            sent = [one for some in by_place.values() for one in some]
        return sent, missing

    async def _tell_destinations(self, say: Callable[[str], None], *, dry_run: bool) -> None:
        """So that they look for all of it in their ledgers at once, beside what they deliver. Who
        understands it is of a version that knows of repairs.
        """
        for cluster_id in sorted({one.destination for one in self.lost} & self.names.keys()):
            site = self.names[cluster_id]
            lacking = [] if dry_run else [o for o in self.lost if o.destination == cluster_id]
            asked = {
                "identities": [one.identity.hex() for one in lacking],
                "since_ms": min((one.published_ms for one in lacking), default=0),
            }
            try:
                async for told in NodeClient.of(self.state, site).post("repair/expected", asked):
                    if "for_s" in told:
                        say(f"{site} looks through its ledger, for {told['for_s']:.0f} s by now")
            except NodeAway:
                continue  # it looks when they come; that it is away, is told where it matters
            except NodeSaysNo as error:
                self.warn(str(error))  # where its ledger has to say it, nothing is delivered
            self.take_pieces.add(cluster_id)

    def _under_way(self, destination: str) -> set[str]:
        return self.batches.setdefault(self.names[destination], set())

    async def wait(self, within_s: float, say: Callable[[str], None]) -> None:
        """Until the destinations are done with what was sent, or nothing more has come for that
        time; then `problems` says of whom.
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
            async for told in client.post("repair/settled", {"batches": some}):
                found |= set(told["waiting"])
        return found

    async def tell_ledgers(self) -> Mapping[str, str]:
        """All nodes of this machine write down what they did so far. Why not, of those that
        cannot.
        """
        failures: dict[str, str] = {}
        for site in self.mesh.sites:
            try:
                async for told in NodeClient.of(self.state, site).post("ledger", {}):
                    if told["failure"]:
                        failures[site] = f"{site}: {told['failure']}"
            except (NodeAway, NodeSaysNo) as error:
                failures[site] = str(error)
        return failures

    def as_json(self) -> dict[str, Any]:
        return {
            "lost": len(self.lost),
            "sent": {site: len(sent) for site, sent in self.sent.items()},
            "irrecoverable": [_told(one) for one in self.irrecoverable],
            "departed": [_told(one) for one in self.departed],
            "not_asked": [_told(one) for one in self.not_asked],
            "refused": [_told(one) | {"why": why} for one, why in self.refused],
            "waited": self.waited,
            "under_way": {site: sorted(names) for site, names in self.batches.items() if names},
            "problems": self.problems,
        }


def _told(one: Lost) -> dict[str, Any]:
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
    """How many, by the name of the site that lacks them."""
    found: dict[str, int] = {}
    for one in lost:
        site = names.get(one.destination, one.destination)
        found[site] = found.get(site, 0) + 1
    return found
