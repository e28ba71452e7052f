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
    """Change of an exchange's partitions. `queues` are the egress queues that the exchange leads to
    at present; none where it leads to none, and nobody knows by which number messages that wait
    were spread.
    """

    exchange: str
    queues: frozenset[str]
    wanted: int
    """Number of partitions in the mesh file."""

    def concerns(self, names: Names, binding: BindingDeclaration) -> bool:
        """Return True if the binding is on the exchange's way to its egress queues."""
        return binding.exchange in (self.exchange, names.partitions(self.exchange))

    def __str__(self) -> str:
        former = counted(len(self.queues), "partition") if self.queues else "none bound"
        return f"{former} -> {self.wanted}"


def partition_changes(
    mesh: Mesh, site: str, present: Collection[BindingDeclaration]
) -> Iterator[PartitionChange]:
    """Yield the exchanges that lead to another number of egress queues, at the broker of `site`,
    than the mesh file says. A change that was cut short, with both ways bound, is none: the rest of
    it is to be done at once, since messages go both ways meanwhile.
    """
    names = Names(mesh.name)
    for exchange in mesh.exchanges.values():
        if not exchange.leaves(site):
            continue
        spread = names.partitions(exchange.name)
        led_to = {binding.queue for binding in present if binding.exchange == exchange.name}
        is_direct, is_spread = names.egress(exchange.name) in led_to, spread in led_to
        if is_direct and is_spread:
            continue
        if is_spread:
            queues = frozenset(binding.queue for binding in present if binding.exchange == spread)
        else:
            queues = frozenset({names.egress(exchange.name)} if is_direct else ())
        if len(queues) != exchange.partitions and (queues or exchange.partitions > 1):
            yield PartitionChange(exchange.name, queues, exchange.partitions)


def sites_with_slots(mesh: Mesh, change: PartitionChange) -> list[str]:
    """Return the sites with several slots, among those that send or get messages of the exchange,
    for which its number of partitions cannot change.
    """
    found = mesh.exchanges[change.exchange]
    return [
        name
        for name, site in mesh.sites.items()
        if change.queues and not site.slots.is_whole and (found.leaves(name) or found.reaches(name))
    ]
