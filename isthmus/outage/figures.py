"""Cost of an outage at some rate: lag, catching up, logs. Pure arithmetic.

The simulation with few messages (`simulation.outage`) yields the part of each flow that sites
lacked and links carried. The rest is linear::

    lag        = part x messages/s x seconds of the outage
    bytes      = messages x bytes of log a message, as `isthmus plan` counts them
    a link's backlog = bytes carried afterwards, and bytes beyond the line's capacity meanwhile
    catching up      = backlog / (capacity of the line - new bytes)
    a site catches up with the slowest of the links that carry its backlog

    slowed     = part x messages/s x seconds x (1 - line / load), before a line that is too slow
    late       = messages/s x (outage + catching up) x (1 - deadline / outage)

Lag is oldest when the outage ends, and falls wherever a line carries more than the new traffic. So
a log keeps what an outage window of the outage's length keeps; a message published at t that comes
late is (1 - t / (outage + catching up)) x outage old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from federation.mesh import LogLimit, Mesh, WhenLogIsFull
from federation.planning.disk_need import DiskNeed, bytes_each, disk_need
from federation.planning.log_spread import shares
from isthmus.display import JsonObject
from isthmus.outage.question import Question
from isthmus.plan.expected_load import assumed_of
from simulation.outage import OutageRecord, Parts, PublishedFlow, away


@dataclass(frozen=True, slots=True)
class SiteLag:
    """Lag of a site when the outage ends: `behind` in messages by origin; `catch_up_s` None if
    never.
    """

    behind: Mapping[str, float]
    bytes: float
    oldest_s: float
    catch_up_s: float | None
    lost: Mapping[str, float]
    late: Mapping[str, float]
    """Messages that come after the deadline or never, by exchange with a `deadline`."""
    slowed: Mapping[str, float]
    """Messages that have a path but wait before an overloaded line, by origin; an upper bound,
    since copies may take another path.
    """

    @property
    def messages(self) -> float:
        return sum(self.behind.values())


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Load of a link in bytes a second; `backlog` in bytes at the end of the outage; `drain_s` None
    if never.
    """

    is_away: bool
    before: float
    meanwhile: float
    messages_before: float
    messages_meanwhile: float
    line: float
    backlog: float
    drain_s: float | None

    @property
    def is_too_slow(self) -> bool:
        """True if the line carries less than its load, be it only during the outage."""
        return max(self.before, self.meanwhile) > self.line

    @property
    def held_up(self) -> float:
        """Part of the load during the outage that waits before the line."""
        return max(0.0, 1 - self.line / self.meanwhile) if self.meanwhile else 0.0


@dataclass(frozen=True, slots=True)
class LogNeed:
    """Bytes of log at a site with a failed link; `lasts_s` is the time until the limit is full."""

    links: tuple[str, ...]
    bytes: float
    limit: LogLimit
    lasts_s: float | None
    is_short: bool


@dataclass(frozen=True, slots=True)
class OutageCost:
    """Whole cost; sites and links by name."""

    question: Question
    mesh: Mesh
    sites: Mapping[str, SiteLag]
    links: Mapping[str, LinkLoad]
    logs: Mapping[str, LogNeed]
    held: Mapping[PublishedFlow, float]
    """Messages in the egress queues of their origins, waiting for a neighbour's log."""
    gaps: tuple[tuple[str, str], ...]
    simulated: int
    """Messages of the simulation, which stand for all."""

    @property
    def needed_retention_s(self) -> float:
        """Retention of logs with an outage window as long as the outage."""
        return replace(self.mesh, outage_window_s=self.question.seconds).retention_s

    @property
    def fits_window(self) -> bool:
        return self.question.seconds <= self.mesh.outage_window_s

    @property
    def fits_logs(self) -> bool:
        return not any(log.is_short for log in self.logs.values())

    @property
    def never(self) -> tuple[str, ...]:
        """Sites that never catch up."""
        return tuple(name for name, one in self.sites.items() if one.catch_up_s is None)

    @property
    def lost(self) -> float:
        """Messages that never arrive, summed over sites."""
        return sum(sum(one.lost.values()) for one in self.sites.values())

    @property
    def is_enough(self) -> bool:
        """True if the outage window and logs of the file suffice."""
        return self.fits_window and self.fits_logs and not self.never and not self.gaps


def flows_of(mesh: Mesh, question: Question) -> list[PublishedFlow]:
    """Return the flows with a rate above 0."""
    return [
        PublishedFlow(exchange.name, site)
        for exchange in mesh.exchanges.values()
        for site in mesh.sites
        if exchange.leaves(site) and question.rates.of(exchange.name, site)
    ]


def kept_of(mesh: Mesh, question: Question) -> dict[str, float]:
    """Return by site the part (0 to 1) of the outage's log that is still there when the outage
    ends.

    A full log that blocks keeps all of its content.
    """
    kept = {}
    for site, need in _disk(mesh, question).items():
        lasts_s = mesh.retention_s
        if need.limit.on_full is WhenLogIsFull.GAP and need.lasts_s is not None:
            lasts_s = min(lasts_s, need.lasts_s)
        kept[site] = min(1.0, lasts_s / question.seconds)
    return kept


def outage_cost(mesh: Mesh, question: Question, watched: OutageRecord) -> OutageCost:
    """Scale the simulation to the rates of the question."""
    weigh = _Weigh(mesh, question)
    cut = away(mesh, question.failure)
    links = {
        link.name: _link(link.name, link.name in cut, watched, weigh, question)
        for link in mesh.links
    }
    sites = {name: _site(name, watched, weigh, links, question, mesh) for name in mesh.sites}
    return OutageCost(
        question,
        mesh,
        sites,
        links,
        _logs(mesh, question, cut),
        {flow: weigh.messages({flow: part}) for flow, part in watched.held.items()},
        watched.gaps,
        watched.messages,
    )


class _Weigh:
    """Converter from parts of flows to messages and bytes, a second or over the whole outage."""

    def __init__(self, mesh: Mesh, question: Question) -> None:
        self._rates = question.rates
        self._seconds = question.seconds
        self._bytes: dict[PublishedFlow, float] = {}
        for flow in flows_of(mesh, question):
            exchange = mesh.exchanges[flow.exchange]
            rate = question.rates.of(*flow)
            groups = shares(mesh, exchange)
            self._bytes[flow] = bytes_each(
                mesh, exchange, groups, rate, question.size, question.compression
            )

    def messages_per_s(self, parts: Parts) -> float:
        return sum(part * self._rates.of(*flow) for flow, part in parts.items())

    def bytes_per_s(self, parts: Parts) -> float:
        return sum(part * self._rates.of(*flow) * self._bytes[flow] for flow, part in parts.items())

    def messages(self, parts: Parts) -> float:
        return self.messages_per_s(parts) * self._seconds

    def bytes(self, parts: Parts) -> float:
        return self.bytes_per_s(parts) * self._seconds

    def by_origin(self, parts: Parts) -> dict[str, float]:
        found: dict[str, float] = {}
        for flow, part in parts.items():
            found[flow.origin] = found.get(flow.origin, 0.0) + self.messages({flow: part})
        return found


def _link(
    name: str, is_away: bool, watched: OutageRecord, weigh: _Weigh, question: Question
) -> LinkLoad:
    before, meanwhile = watched.before.get(name, {}), watched.meanwhile.get(name, {})
    line = question.lines.of(name)
    new = weigh.bytes_per_s(before)
    load = weigh.bytes_per_s(meanwhile)
    backlog = weigh.bytes(watched.caught_up.get(name, {}))
    if new <= line:
        # Otherwise the line is always too slow: its backlog is not the outage's.
        backlog += max(0.0, load - line) * question.seconds
    drain_s: float | None = 0.0
    if backlog:
        drain_s = backlog / (line - new) if line > new else None
    return LinkLoad(
        is_away,
        new,
        load,
        weigh.messages_per_s(before),
        weigh.messages_per_s(meanwhile),
        line,
        backlog,
        drain_s,
    )


def _site(
    name: str,
    watched: OutageRecord,
    weigh: _Weigh,
    links: Mapping[str, LinkLoad],
    question: Question,
    mesh: Mesh,
) -> SiteLag:
    lacking, seconds = watched.lacking[name], question.seconds
    drains = [links[link].drain_s for link in watched.ways[name]] if lacking else []
    known = [one for one in drains if one is not None]
    catch_up_s = None if len(known) < len(drains) else max(known, default=0.0)
    return SiteLag(
        weigh.by_origin(lacking),
        weigh.bytes(lacking),
        seconds if lacking else 0.0,
        catch_up_s,
        weigh.by_origin(watched.lost[name]),
        _late(lacking, weigh, seconds, catch_up_s, mesh),
        weigh.by_origin(
            {
                flow: part * slowed
                for flow, part in watched.came[name].items()
                if (slowed := max(links[one].held_up for one in watched.came_by[name][flow]))
            }
        ),
    )


def _late(
    lacking: Parts, weigh: _Weigh, seconds: float, catch_up_s: float | None, mesh: Mesh
) -> dict[str, float]:
    found: dict[str, float] = {}
    for flow, part in lacking.items():
        deadline_s = mesh.exchanges[flow.exchange].deadline_s
        if deadline_s is not None and deadline_s < seconds:
            # Without catching up, count at least the messages of the outage.
            late_s = (seconds + (catch_up_s or 0.0)) * (1 - deadline_s / seconds)
            late = weigh.messages_per_s({flow: part}) * late_s
            found[flow.exchange] = found.get(flow.exchange, 0.0) + late
    return found


def _logs(mesh: Mesh, question: Question, cut: frozenset[str]) -> dict[str, LogNeed]:
    found = {}
    for site, need in _disk(mesh, question).items():
        links = tuple(link.name for link in mesh.links_from(site) if link.name in cut)
        if links and site not in question.failure.sites:
            found[site] = LogNeed(links, need.log_bytes, need.limit, need.lasts_s, need.is_short)
    return found


def _disk(mesh: Mesh, question: Question) -> dict[str, DiskNeed]:
    """Compute the disk need for an outage window as long as the outage."""
    wanted = replace(mesh, outage_window_s=question.seconds)
    return disk_need(wanted, question.rates, question.size, question.compression)


def report_of(cost: OutageCost) -> JsonObject:
    """Return the cost as a JSON object: messages and bytes rounded, times in seconds, null for
    never.
    """
    question, mesh = cost.question, cost.mesh
    return {
        "mesh": mesh.name,
        "revision": mesh.revision,
        "fails": list(question.names),
        "links_away": [name for name, one in cost.links.items() if one.is_away],
        "sites_away": sorted(question.failure.sites),
        "outage_s": question.seconds,
        "assumed": {
            **assumed_of(question.rates, question.size, question.compression),
            "line_bytes_per_s": question.lines.everywhere,
            "line_bytes_per_s_of": dict(question.lines.links),
        },
        "simulated_messages": cost.simulated,
        "sites": {name: _site_report(one) for name, one in cost.sites.items()},
        "links": {name: _link_report(one) for name, one in cost.links.items()},
        "logs": {name: _log_report(one) for name, one in cost.logs.items()},
        "waits_in_egress": [
            {"exchange": flow.exchange, "site": flow.origin, "messages": round(messages)}
            for flow, messages in cost.held.items()
        ],
        "gaps": [{"site": site, "stage": stage} for site, stage in cost.gaps],
        "lost_messages": round(cost.lost),
        "never_catch_up": list(cost.never),
        "needed": {
            "outage_window_s": question.seconds,
            "retention_s": cost.needed_retention_s,
        },
        "file": {
            "outage_window_s": mesh.outage_window_s,
            "retention_s": mesh.retention_s,
        },
        "enough": cost.is_enough,
    }


def _site_report(one: SiteLag) -> JsonObject:
    return {
        "behind": {origin: round(messages) for origin, messages in one.behind.items()},
        "messages": round(one.messages),
        "bytes": round(one.bytes),
        "oldest_s": one.oldest_s,
        "catch_up_s": one.catch_up_s,
        "lost": {origin: round(messages) for origin, messages in one.lost.items()},
        "slowed": {origin: round(messages) for origin, messages in one.slowed.items()},
        "late": {exchange: round(messages) for exchange, messages in one.late.items()},
    }


def _link_report(one: LinkLoad) -> JsonObject:
    return {
        "away": one.is_away,
        "bytes_per_s_before": round(one.before),
        "bytes_per_s_meanwhile": round(one.meanwhile),
        "messages_per_s_before": round(one.messages_before, 3),
        "messages_per_s_meanwhile": round(one.messages_meanwhile, 3),
        "line_bytes_per_s": one.line,
        "too_slow": one.is_too_slow,
        "backlog_bytes": round(one.backlog),
        "drain_s": one.drain_s,
    }


def _log_report(one: LogNeed) -> JsonObject:
    return {
        "keeps_for": list(one.links),
        "log_bytes": round(one.bytes),
        "max_bytes": one.limit.max_bytes,
        "on_full": one.limit.on_full.value,
        "lasts_s": one.lasts_s,
        "short": one.is_short,
    }
