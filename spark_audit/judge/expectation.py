"""Expected sites of a batch, by the mesh document of its revision. Pure.

Combinations of revision, exchange, origin and destination set are few, so that each is resolved
once and joined to the batches. The mesh file may change an exchange's `scope` or `order` within a
day: each batch follows its own revision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from federation.mesh import Begins, Exchange, IdentityScope, Mesh, OrderRule
from federation.mesh_json import BadMeshJson, mesh_from_json
from federation.reachability import neighbours, reached_from
from federation.slots import SlotMap


@dataclass(frozen=True, slots=True)
class ExchangesWhere:
    """Exchanges with a property. `always`: exchanges that have the property in every revision;
    `at_times`: other exchanges -> the revisions in which they have it.
    """

    always: tuple[str, ...] = ()
    at_times: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, held_in: Mapping[str, Mapping[str, bool]]) -> ExchangesWhere:
        """Build from exchange -> revision -> True if the exchange has the property."""
        held = {name: [r for r, holds in by.items() if holds] for name, by in held_in.items()}
        return cls(
            tuple(
                sorted(name for name, by in held_in.items() if by and len(held[name]) == len(by))
            ),
            {
                name: tuple(sorted(revisions))
                for name, revisions in sorted(held.items())
                if 0 < len(revisions) < len(held_in[name])
            },
        )

    def always_holds(self) -> str:
        """Return SQL over `exchange`: true if the property holds in every revision."""
        return f"exchange IN ({sql_texts(self.always)})" if self.always else "false"

    def holds(self) -> str:
        """Return SQL over `exchange` and `revision`: true if the property holds; never null."""
        parts = [self.always_holds()] if self.always else []
        parts += [
            f"(exchange = {sql_texts([name])}"
            f" AND coalesce(revision IN ({sql_texts(revisions)}), false))"
            for name, revisions in self.at_times.items()
        ]
        return f"({' OR '.join(parts)})" if parts else "false"


def sql_texts(values: Collection[str]) -> str:
    """Return SQL literals of the values."""
    escapes = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n"})
    return ", ".join(f"'{one.translate(escapes)}'" for one in values)


class SlotsTaken(NamedTuple):
    """Slots that a site had from `from_ms` on, until it took up the next revision at `to_ms`; None
    for those that it has.
    """

    from_ms: int
    to_ms: int | None
    slots: SlotMap


class Addressed(NamedTuple):
    """Address shared by batches that go to the same sites. Sites are cluster IDs."""

    revision: str
    exchange: str
    origin: str
    destinations: tuple[str, ...]


@dataclass(slots=True)
class Revisions:
    """Meshes that any site has run."""

    meshes: dict[str, Mesh] = field(default_factory=dict)
    taken_up_ms: dict[str, int] = field(default_factory=dict)
    """Revision -> first time that any site took it up."""
    unreadable: list[str] = field(default_factory=list)
    taken_up_at: dict[str, dict[str, int]] = field(default_factory=dict)
    """Site -> revision -> last time that the site took it up."""
    begins_at_start: set[str] = field(default_factory=set)
    """Cluster IDs of sites that also get messages for every site from before they joined."""

    @classmethod
    def read(cls, documents: Iterable[tuple[str, Mapping[str, Any]]]) -> Revisions:
        """Read documents: (site, content of a revision's file)."""
        found = cls()
        for site, content in documents:
            try:
                mesh = mesh_from_json(content["mesh"])
                taken_up = int(content["taken_up_ms"])
            except (KeyError, ValueError, TypeError, BadMeshJson) as error:
                found.unreadable.append(f"{site}/revisions: {error!r}")
                continue
            found.add(mesh, taken_up)
            taken = found.taken_up_at.setdefault(site, {})
            taken[mesh.revision] = max(taken_up, taken.get(mesh.revision, taken_up))
            own = mesh.sites.get(site)
            if own is not None and own.begins is Begins.START:
                found.begins_at_start.add(own.cluster_id)
        return found

    def add(self, mesh: Mesh, taken_up_ms: int) -> None:
        self.meshes[mesh.revision] = mesh
        earlier = self.taken_up_ms.get(mesh.revision, taken_up_ms)
        self.taken_up_ms[mesh.revision] = min(earlier, taken_up_ms)

    def latest_first(self) -> list[Mesh]:
        return sorted(
            self.meshes.values(), key=lambda mesh: self.taken_up_ms[mesh.revision], reverse=True
        )

    def site_names(self) -> dict[str, str]:
        """Return cluster ID -> site name over all revisions."""
        names: dict[str, str] = {}
        for mesh in self.latest_first():
            for site in mesh.sites.values():
                names.setdefault(site.cluster_id, site.name)
        return names

    def left_ms(self, site: str) -> int | None:
        """Return the first time at which another site took up a mesh without this site and never
        took it back, or None if none has yet.
        """
        return min(
            (
                ms
                for other, taken in self.taken_up_at.items()
                if other != site and (ms := self._without_since(site, taken)) is not None
            ),
            default=None,
        )

    def _without_since(self, site: str, taken: Mapping[str, int]) -> int | None:
        """Return since when a site that took up these revisions has run without `site`, or None if
        it still has `site` or never had: a site that departed earlier is no evidence.
        """
        since = None
        for revision, ms in sorted(taken.items(), key=lambda one: one[1], reverse=True):
            if site in self.meshes[revision].sites:
                return since
            since = ms
        return None

    def slots_of(self, site: str) -> list[SlotsTaken]:
        """Return the slots that a site had, in order of time, by the revisions that it took up."""
        taken = sorted(self.taken_up_at.get(site, {}).items(), key=lambda one: one[1])
        ends = [*(ms for _, ms in taken[1:]), None]
        return [
            SlotsTaken(ms, end, self.meshes[revision].sites[site].slots)
            for (revision, ms), end in zip(taken, ends, strict=False)
            if site in self.meshes[revision].sites
        ]

    def last_with(self, site: str) -> Mesh | None:
        return next((mesh for mesh in self.latest_first() if site in mesh.sites), None)

    def exchanges(self) -> dict[str, Exchange]:
        """Return every exchange in its latest form."""
        found: dict[str, Exchange] = {}
        for mesh in self.latest_first():
            for exchange in mesh.exchanges.values():
                found.setdefault(exchange.name, exchange)
        return found

    def scoped_by_origin(self) -> ExchangesWhere:
        """Return exchanges whose identities are unique within an origin only."""
        return self._where(lambda exchange: exchange.scope is IdentityScope.ORIGIN)

    def loosely_ordered(self) -> ExchangesWhere:
        """Return exchanges whose messages may arrive out of order."""
        return self._where(lambda exchange: exchange.order is not OrderRule.STRICT)

    def _where(self, holds: Callable[[Exchange], bool]) -> ExchangesWhere:
        return ExchangesWhere.of(
            {
                name: {
                    revision: holds(exchange)
                    for revision in self.meshes
                    if (exchange := self._exchange(revision, name)) is not None
                }
                for name in self.exchanges()
            }
        )

    def expected(self, addressed: Addressed) -> tuple[str, ...] | None:
        """Return sorted cluster IDs of the expected sites, or None if the revision is unknown."""
        mesh = self.meshes.get(addressed.revision)
        if mesh is None:
            return None
        exchange = self._exchange(addressed.revision, addressed.exchange)
        origin = _site_of(mesh, addressed.origin)
        if exchange is None or origin is None:
            return None
        links = (
            (link.sender, link.receiver)
            for link in mesh.links
            if not {link.sender, link.receiver} & set(exchange.never_via)
        )
        reached = reached_from(origin, neighbours(links), mesh.rule)
        return tuple(
            sorted(
                site.cluster_id
                for site in mesh.sites.values()
                if site.name != origin
                and exchange.reaches(site.name)
                and site.name in reached
                and (not addressed.destinations or site.cluster_id in addressed.destinations)
            )
        )

    def deadline_ms(self, addressed: Addressed) -> int | None:
        """Return the longest time from publishing to delivery, or None without a deadline."""
        exchange = self._exchange(addressed.revision, addressed.exchange)
        if exchange is None or exchange.deadline_s is None:
            return None
        return round(exchange.deadline_s * 1000)

    def _exchange(self, revision: str, name: str) -> Exchange | None:
        """Return the exchange in a revision; a removed exchange is packed as the revision before
        had it.
        """
        mesh = self.meshes.get(revision)
        if mesh is None:
            return None
        if name in mesh.exchanges:
            return mesh.exchanges[name]
        before_ms = self.taken_up_ms[revision]
        for earlier in self.latest_first():
            if self.taken_up_ms[earlier.revision] <= before_ms and name in earlier.exchanges:
                return earlier.exchanges[name]
        return None


def _site_of(mesh: Mesh, cluster_id: str) -> str | None:
    return next((site.name for site in mesh.sites.values() if site.cluster_id == cluster_id), None)


def stages_of(mesh: Mesh, site: str) -> list[str]:
    """Return the stages whose ledgers must cover this site: those of its links too, if any."""
    if site not in mesh.sites:
        return []
    links = [
        *(["linked_out"] if mesh.links_from(site) else []),
        *(["linked_in"] if mesh.links_to(site) else []),
    ]
    return ["packed", *links, "delivered"]
