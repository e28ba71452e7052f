"""Which slot of a site packs which partition, also of exchanges that are retired."""

from __future__ import annotations

from dataclasses import replace

from federation.brokers.addresses import AddressBook
from federation.brokers.credentials import make_credentials
from federation.mesh import Mesh
from federation.mesh_file import parse_mesh
from relay.batches.known_formats import KNOWN
from relay.delivery.context import DeliveryCounters
from relay.node.parts import NodeParts
from relay.operator.holds import Holds

FILE = """
mesh: m
topology: complete
exchanges: [{name: orders, partitions: 4}]
sites: {a: {slots: 4}, b: {}}
"""


def mesh(text: str = FILE) -> Mesh:
    found = parse_mesh(text.encode()).mesh
    assert found is not None
    return found


def packed_by(slot: int, now: Mesh, *retired: Mesh) -> list[tuple[str, str, int]]:
    """Return exchange, queue and lane of what a slot packs."""
    parts = NodeParts(
        site="a",
        book=AddressBook(now, make_credentials(now), {}, {}),
        retired=retired,
        holds=Holds(),
        log_is_full=False,
        counters=DeliveryCounters(),
        formats=KNOWN,
        slot=slot,
    )
    return [(one.name, one.queue, one.lane) for one in parts.packer_settings().exchanges]


def test_each_slot_packs_one_of_as_many_partitions() -> None:
    packed = [packed_by(slot, mesh()) for slot in range(4)]
    assert sorted(lane for ((_, _, lane),) in packed) == [0, 203, 204, 205]
    assert len({queue for ((_, queue, _),) in packed}) == 4


def test_partitions_that_are_no_more_are_packed_until_they_are_empty() -> None:
    fewer = mesh(FILE.replace("partitions: 4", "partitions: 2").replace("slots: 4", "slots: 1"))
    more = mesh(FILE.replace("slots: 4", "slots: 1"))
    assert [lane for _, _, lane in packed_by(0, fewer, more)] == [0, 203, 204, 205]


def test_a_queue_that_had_the_name_of_a_partition_is_packed_by_one_slot() -> None:
    former = mesh(FILE.replace("orders, partitions: 4", "orders.p1"))
    packed = [one for slot in range(4) for one in packed_by(slot, mesh(), replace(former))]
    assert len(packed) == 4
    assert {name for name, _, _ in packed} == {"orders"}
