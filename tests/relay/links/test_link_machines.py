"""The two machines against each other in virtual time: one fault a test."""

from __future__ import annotations

from tests.relay.link_logs import make_batch
from tests.relay.link_world import LinkWorld


def filled(world: LinkWorld, count: int, size: int = 1000) -> LinkWorld:
    for sequence in range(len(world.source.batches), len(world.source.batches) + count):
        world.source.append(*make_batch(sequence, size=size))
    return world


def in_order(world: LinkWorld) -> None:
    world.check_log()
    assert [name for name, _ in world.target.confirmed] == world.due()


def test_all_batches_arrive_once_and_in_order() -> None:
    world = filled(LinkWorld(), 500)
    world.start()
    world.run_until_arrived(5)
    in_order(world)
    world.time.run_until(world.time.now + 10)
    assert world.sender is not None
    assert world.sender.outstanding == 0
    assert len(world.batches_sent) == 500
