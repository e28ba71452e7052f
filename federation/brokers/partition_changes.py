"""Changes in the number of an exchange's partitions at a broker. `apply` makes them only while none
of the exchange's messages wait: a key's later messages would go by another queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from federation.brokers.provision import BindingDeclaration
from federation.mesh import Mesh
from federation.names import Names
from federation.wording import counted

WAY = (
    "stop what publishes to it at every site, wait until `isthmus status` shows no message waiting "
    "and no link behind, apply at all sites, and publish again; or use an exchange of another name"
)
OTHER_NAME = (
    "put the former number back, and use an exchange of another name with the new one: the memory "
    "of its identities is in other slots than the new partitions would be"
)


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """Change of an exchange's partitions. `queues` are the egress queues bound at present."""

    exchange: str
    queues: frozenset[str]
    wanted: int
    """Number of partitions in the mesh file."""

    def concerns(self, names: Names, binding: BindingDeclaration) -> bool:
        """Return True if the binding is on the exchange's way to its egress queues."""
        return binding.exchange in (self.exchange, names.partitions(self.exchange))

    def __str__(self) -> str:
        return f"{counted(len(self.queues), 'partition')} -> {self.wanted}"


def partition_changes(
    mesh: Mesh, site: str, present: Collection[BindingDeclaration]
) -> Iterator[PartitionChange]:
    """Yield the exchanges whose bindings at the broker of `site` lead to another number of egress
    queues than the mesh file says.
    """
    names = Names(mesh.name)
    for exchange in mesh.exchanges.values():
        if not exchange.leaves(site):
            continue
        direct = {b.queue for b in present if b.exchange == exchange.name and not b.to_exchange}
        hashed = {b.queue for b in present if b.exchange == names.partitions(exchange.name)}
        queues = hashed or direct & {names.egress(exchange.name)}
        if queues and len(queues) != exchange.partitions:
            yield PartitionChange(exchange.name, frozenset(queues), exchange.partitions)


def sites_with_slots(mesh: Mesh, exchange: str) -> list[str]:
    """Return the sites with several slots among those that send or get messages of the exchange."""
    found = mesh.exchanges[exchange]
    return [
        name
        for name, site in mesh.sites.items()
        if not site.slots.is_whole and (found.leaves(name) or found.reaches(name))
    ]
