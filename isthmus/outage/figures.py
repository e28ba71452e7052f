"""What an outage comes to at some rate: lag, catching up, logs. Pure arithmetic.

What the nodes did with few messages (`simulation.outage`) says which part of each flow lacked
where, and which part each link carried. The rest is linear::

    lag        = part x messages/s x seconds of the outage
    bytes      = messages x bytes of log a message, as `isthmus plan` counts them
    a link's backlog = what it carried afterwards, and what was too much for it meanwhile
    catching up      = backlog / (what the line carries - what comes new)
    a site catches up when the slowest of the links has over which its backlog comes

    slowed     = part x messages/s x seconds x (1 - line / load), before a line that is too slow
    late       = messages/s x (outage + catching up) x (1 - deadline / outage)

What waits is the oldest when the outage ends: from then on its age falls wherever a line carries
more than what comes new. So a log has to keep what the outage window of that length keeps, and what
was published at t of all that comes late, is (1 - t / (outage + catching up)) x outage old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from federation.mesh import LogLimit, Mesh, WhenLogIsFull
from federation.planning.disk_need import DiskNeed, bytes_each, disk_need
from federation.planning.log_spread import shares
from isthmus.outage.asked import Question
from simulation.outage import OutageRecord, Parts, PublishedFlow, away


@dataclass(frozen=True, slots=True)
class SiteLag:
    """`behind`: messages by origin. `catch_up_s` None: never."""

    behind: Mapping[str, float]
    bytes: float
    oldest_s: float
    catch_up_s: float | None
    lost: Mapping[str, float]
    late: Mapping[str, float]
    """By exchange that has a `deadline`: messages that come later, or never."""
    slowed: Mapping[str, float]
    """By origin: messages that have a way, and wait before a line that is too slow for all that
    goes over it meanwhile; at most, since copies may come another way."""

    @property
    def messages(self) -> float:
        return sum(self.behind.values())


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Bytes a second. `backlog` in bytes, when the outage ends; `drain_s` None: never."""

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
        """Whether its line carries less than what comes, be it only meanwhile."""
        return max(self.before, self.meanwhile) > self.line

    @property
    def held_up(self) -> float:
        """The part of what it has to carry meanwhile that waits before its line."""
        return max(0.0, 1 - self.line / self.meanwhile) if self.meanwhile else 0.0


@dataclass(frozen=True, slots=True)
class LogNeed:
    """Of a site whose log has to keep what a link cannot carry. Bytes. `lasts_s`: of the limit."""

    links: tuple[str, ...]
    bytes: float
    limit: LogLimit
    lasts_s: float | None
    is_short: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """All of it. Sites and links by name."""

    question: Question
    mesh: Mesh
    sites: Mapping[str, SiteLag]
    links: Mapping[str, LinkLoad]
    logs: Mapping[str, LogNeed]
    held: Mapping[PublishedFlow, float]
    """Messages that wait in their origin's egress queue for a neighbour's log."""
    gaps: tuple[tuple[str, str], ...]
    simulated: int
    """Messages that stood for all."""

    @property
    def needed_retention_s(self) -> float:
        """How long logs keep things with an outage window of that length."""
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
        """Messages that never come, at all sites together."""
        return sum(sum(one.lost.values()) for one in self.sites.values())

    @property
    def is_enough(self) -> bool:
        """Whether the file's outage window and its logs are."""
        return self.fits_window and self.fits_logs and not self.never and not self.gaps


def flows_of(mesh: Mesh, question: Question) -> list[PublishedFlow]:
    """Those of which something is published."""
    return [
        PublishedFlow(exchange.name, site)
        for exchange in mesh.exchanges.values()
        for site in mesh.sites
        if exchange.leaves(site) and question.rates.of(exchange.name, site)
    ]


def kept_of(mesh: Mesh, question: Question) -> dict[str, float]:
    """By site: of what its log gets during the outage, how much is still there at its end, 0 to 1.

    A full log that blocks keeps all that it has.
    """
    kept = {}
    for site, need in _disk(mesh, question).items():
        lasts_s = mesh.retention_s
        if need.limit.on_full is WhenLogIsFull.GAP and need.lasts_s is not None:
            lasts_s = min(lasts_s, need.lasts_s)
        kept[site] = min(1.0, lasts_s / question.seconds)
    return kept


def answer(mesh: Mesh, question: Question, watched: OutageRecord) -> Answer:
    """What was watched, at the rates that were asked about."""
    weigh = _Weigh(mesh, question)
    cut = away(mesh, question.failure)
    links = {
        link.name: _link(link.name, link.name in cut, watched, weigh, question)
        for link in mesh.links
    }
    sites = {name: _site(name, watched, weigh, links, question, mesh) for name in mesh.sites}
    return Answer(
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
    """What parts of flows come to; all a second or, of lags, for the whole outage."""

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
        # Else it is too slow at any time, and its backlog is not the outage's.
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
            # Where it never catches up, of those of the outage at least.
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
    """What `isthmus plan` says for an outage window as long as the outage."""
    wanted = replace(mesh, outage_window_s=question.seconds)
    return disk_need(wanted, question.rates, question.size, question.compression)
