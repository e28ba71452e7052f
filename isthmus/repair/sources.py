"""Which sites are asked for a message that another one lacks, and in which order. Pure."""

from __future__ import annotations

from federation.mesh import Mesh
from federation.reachability import neighbours, reached_from
from isthmus.repair.lost import Lost


class Sources:
    """Of one mesh; sites by name."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.names = {site.cluster_id: site.name for site in mesh.sites.values()}
        """Cluster ID -> name."""
        self._reached: dict[tuple[str, str], set[str]] = {}

    def of(self, lost: Lost) -> list[str]:
        """The message's origin first, in the end the site itself that lacks it: its log may have
        what it failed to deliver. Only those from which a batch gets there, and is taken.
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
