"""A site sends messages of its log again: what is found, how it is put together, and how fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import pairwise

import pytest

from relay.batches.batch import BatchKind, BatchName, Entry, LoggedBatch, Place
from relay.batches.format import decode_entries, read_header
from relay.batches.mesh_headers import message_origin
from relay.batches.packed_entries import PackedBatch
from relay.ledger.batch_rows import packed_row
from relay.operator.repair_wanted import BadRequest, Wanted, read_wanted
from relay.operator.repairing import (
    NotSent,
    RepairFailed,
    Repairing,
    RepairProgress,
    RepairRequest,
    Step,
    Waits,
)
from relay.packing.packer_metrics import PackerState
from tests.relay.packer_world import PackerWorld, Process, numbered
from tests.virtual_time import in_virtual_time
from tests.waiting import until

FAST = 1e6
Steps = AsyncGenerator[Step, None]


def batches(world: PackerWorld, kind: BatchKind = BatchKind.MESSAGES) -> list[LoggedBatch]:
    read = [(record.offset, record.data) for record in world.stream.records]
    headers = [(offset, read_header(data), data) for offset, data in read]
    return [
        LoggedBatch(Place(offset, header.name), header, data)
        for offset, header, data in headers
        if header.kind is kind
    ]


def wanted_of(batch: LoggedBatch, *numbers: int, to: tuple[str, ...] = ("tokyo",)) -> list[Wanted]:
    entries = decode_entries(batch.data)
    return [Wanted(batch.header.name, n, entries[n].identity, to) for n in numbers]


def repairing(process: Process, *, is_new_format: bool = True) -> Repairing:
    return Repairing(
        process.log, process.voids.is_void, process.packer.repair, lambda: is_new_format
    )


def is_packing(process: Process) -> bool:
    return process.packer.status.state is PackerState.RUNNING


async def all_of(steps: Steps) -> tuple[list[RepairProgress], list[Wanted]]:
    progress: list[RepairProgress] = []
    async for step in steps:
        if isinstance(step, list):
            return progress, step
        assert isinstance(step, RepairProgress)
        progress.append(step)
    raise AssertionError("no end was told")


def repaired(world: PackerWorld) -> list[tuple[BatchName, list[Entry]]]:
    return [(b.header.name, decode_entries(b.data)) for b in batches(world, BatchKind.REPAIR)]


@in_virtual_time
async def test_wanted_messages_go_into_the_log_again_for_who_lacks_them() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(300))
    await process.has_packed(300)
    first, second = batches(world)
    wanted = [*wanted_of(second, 3), *wanted_of(first, 7, 1), *wanted_of(first, 9, to=("lima",))]
    steps, missing = await all_of(repairing(process).send(RepairRequest(wanted), FAST))
    assert missing == []
    (to_tokyo, entries), (to_lima, others) = repaired(world)
    assert to_tokyo.series == first.header.name.series._replace(destinations=("tokyo",))
    originals = decode_entries(first.data) + decode_entries(second.data)
    assert [e.identity for e in entries] == [originals[n].identity for n in (1, 7, 256 + 3)]
    assert [e.body for e in entries] == [originals[n].body for n in (1, 7, 256 + 3)]
    assert [e.published_ms for e in entries] == [originals[n].published_ms for n in (1, 7, 259)]
    assert (to_lima.series.destinations, len(others)) == (("lima",), 1)
    assert [step.batch for step in steps] == [to_tokyo, to_lima]
    assert sorted(one.entry for step in steps for one in step.sent) == [1, 3, 7, 9]
    await process.stop()
    rows = [packed_row(one, 0) for one in world.ledger.packed if _is_repair(one)]
    assert [(row.kind, row.position, row.count) for row in rows] == [
        (BatchKind.REPAIR, "paris", 3),
        (BatchKind.REPAIR, "paris", 1),
    ]


@in_virtual_time
async def test_what_is_sent_again_goes_in_the_lane_that_waits_for_all_others() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(10))
    await process.has_packed(10)
    (first,) = batches(world)
    again = Repairing(
        process.log, process.voids.is_void, process.packer.repair, lambda: True, lambda: 2
    )
    _, missing = await all_of(again.send(RepairRequest(wanted_of(first, 3)), FAST))
    assert missing == []
    ((name, _),) = repaired(world)
    assert (first.header.name.series.lane, name.series.lane) == (0, 2)
    await process.stop()


def _is_repair(packed: PackedBatch) -> bool:
    return packed.header.kind is BatchKind.REPAIR


@in_virtual_time
async def test_what_two_sites_lack_is_sent_to_both_at_once() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(10))
    await process.has_packed(10)
    (batch,) = batches(world)
    wanted = wanted_of(batch, 4) + wanted_of(batch, 4, to=("lima",))
    await all_of(repairing(process).send(RepairRequest(wanted), FAST))
    ((name, entries),) = repaired(world)
    assert (name.series.destinations, len(entries)) == (("lima", "tokyo"), 1)
    await process.stop()


@in_virtual_time
async def test_what_the_log_does_not_have_is_told() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(10))
    await process.has_packed(10)
    (batch,) = batches(world)
    known = wanted_of(batch, 1)
    gone = [
        known[0]._replace(batch=BatchName(batch.header.name.series, 17)),
        known[0]._replace(entry=300),
        known[0]._replace(entry=2),  # another message stands there
    ]
    looked, missing = await all_of(repairing(process).look(RepairRequest([*known, *gone])))
    assert (looked, sorted(missing)) == ([], sorted(gone))
    assert repaired(world) == []
    _, missing = await all_of(repairing(process).send(RepairRequest([*known, *gone]), FAST))
    assert sorted(missing) == sorted(gone)
    assert [len(entries) for _, entries in repaired(world)] == [1]
    await process.stop()


@in_virtual_time
async def test_big_messages_go_in_pieces_and_many_in_many_batches() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(bytes(2_000_000), *numbered(600))
    await process.has_packed(601)
    wanted = [one for batch in batches(world) for one in wanted_of(batch, *range(len_of(batch)))]
    pieces = batches(world, BatchKind.FRAGMENT)
    wanted += wanted_of(pieces[0], 0)
    _, missing = await all_of(repairing(process).send(RepairRequest(wanted), FAST))
    assert missing == []
    again = batches(world, BatchKind.REPAIR)
    assert [b.header.fragment for b in again if b.header.fragment] == [
        b.header.fragment for b in pieces
    ]
    assert sum(b.header.entry_count for b in again if not b.header.fragment) == 600
    assert {message_origin(b.header, decode_entries(b.data)) for b in again} == {"paris"}
    await process.stop()
    world.assert_numbers_are_dense()


def len_of(batch: LoggedBatch) -> int:
    return batch.header.entry_count


@in_virtual_time
async def test_no_more_than_asked_for_a_second() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(1024))
    await process.has_packed(1024)
    wanted = [one for batch in batches(world) for one in wanted_of(batch, *range(len_of(batch)))]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await all_of(repairing(process).send(RepairRequest(wanted), 256))
    assert 3 <= loop.time() - began < 3.5
    await process.stop()


@in_virtual_time
async def test_who_asked_hears_of_a_slow_repair_every_few_seconds() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(600))
    await process.has_packed(600)
    wanted = [one for batch in batches(world) for one in wanted_of(batch, *range(len_of(batch)))]
    clock, told_at = asyncio.get_running_loop().time, list[float]()
    async for _ in repairing(process).send(RepairRequest(wanted), 2):
        told_at.append(clock())
    assert told_at[-1] - told_at[0] >= 256
    silences = [later - before for before, later in pairwise(told_at)]
    assert max(silences) < 5


@in_virtual_time
async def test_a_big_message_is_not_sent_to_who_may_deliver_its_pieces() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(bytes(2_000_000), *numbered(1))
    await process.has_packed(2)
    (small,) = batches(world)
    wanted = wanted_of(small, 0)
    for site in ("tokyo", "lima"):
        wanted += wanted_of(batches(world, BatchKind.FRAGMENT)[0], 0, to=(site,))
    subject = repairing(process, is_new_format=False)
    request = RepairRequest(wanted, take_pieces=frozenset({"tokyo"}))
    for steps in (subject.look(request), subject.send(request, FAST)):
        told = [step async for step in steps]
        (refused,) = [step for step in told if isinstance(step, NotSent)]
        assert refused.wanted == wanted[-1]  # lima's
        assert "and lima may run a version" in refused.why
        assert "batch_format: 2" in refused.why
        assert told[-1] == []  # it is there
    sent = [one for step in told if isinstance(step, RepairProgress) for one in step.sent]
    assert sorted(sent) == sorted(wanted[:-1])
    batch_of = {b.header.name.series.destinations for b in batches(world, BatchKind.REPAIR)}
    assert batch_of == {("tokyo",)}
    before = len(repaired(world))
    request = RepairRequest(wanted[-1:], take_pieces=frozenset({"tokyo"}))
    told = [step async for step in subject.send(request, FAST)]
    assert [type(step) for step in told] == [NotSent, list]
    assert len(repaired(world)) == before
    request = RepairRequest(wanted, take_pieces=frozenset({"tokyo", "lima"}))
    await all_of(subject.send(request, FAST))
    assert ("lima", "tokyo") in {name.series.destinations for name, _ in repaired(world)}
    await process.stop()


@in_virtual_time
async def test_who_waits_for_another_repair_hears_whose_it_is_and_how_long_it_takes() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(600))
    await process.has_packed(600)
    wanted = [one for batch in batches(world) for one in wanted_of(batch, *range(len_of(batch)))]
    subject = repairing(process)
    first = subject.send(RepairRequest(wanted, by="the first"), 10)
    assert not isinstance(await anext(first), Waits)
    second = subject.send(RepairRequest(wanted[:1], by="the second"), FAST)
    assert await anext(second) == Waits("the first", 600, pytest.approx(0, abs=3))
    later = await anext(second)
    assert isinstance(later, Waits)
    assert later.for_s >= 2
    await first.aclose()  # who asked has gone
    steps, missing = await all_of(second)
    assert (len(steps), missing) == (1, [])
    await process.stop()


@in_virtual_time
async def test_a_packer_that_dies_and_begins_anew_has_the_same_asked_again() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(10))
    await process.has_packed(10)
    (batch,) = batches(world)
    wanted = wanted_of(batch, *range(10))
    world.broker.break_connections("away")
    await until(lambda: not is_packing(process), "the packer has seen its end", 10, every_s=0.001)
    with pytest.raises(RepairFailed, match="nothing can be put into the site's log"):
        await all_of(repairing(process).send(RepairRequest(wanted), FAST))
    await process.kill()
    process = await world.start().ready()
    await until(lambda: is_packing(process), "the next one packs", 10)
    _, missing = await all_of(repairing(process).send(RepairRequest(wanted), FAST))
    assert missing == []
    assert [len(entries) for _, entries in repaired(world)] == [10]
    await process.finish()


@in_virtual_time
async def test_what_a_repair_logged_is_not_taken_for_what_egress_hands_out_again() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(10))
    await world.drained()
    (batch,) = batches(world)
    await all_of(repairing(process).send(RepairRequest(wanted_of(batch, 3)), FAST))
    await process.kill()
    world.publish(*numbered(10, 10))
    await world.pack_all()
    bodies = [bytes(e.body) for b in batches(world) for e in decode_entries(b.data)]
    assert bodies == numbered(20)
    rows = [one for one in world.ledger.packed if _is_repair(one)]
    assert [len(one.entries) for one in rows] == [1]


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        ["paris"],
        [{"batch": "paris", "entry": 0, "identity": "00" * 16, "destinations": ["tokyo"]}],
        [{"batch": "p/00/o.0>*/1", "entry": -1, "identity": "00" * 16, "destinations": ["t"]}],
        [{"batch": "p/00/o.0>*/1", "entry": 0, "identity": "00", "destinations": ["t"]}],
        [{"batch": "p/00/o.0>*/1", "entry": 0, "identity": "00" * 16, "destinations": []}],
        [{"batch": "p/00/o.0>*/1", "entry": 0, "identity": "00" * 16, "destinations": "tokyo"}],
    ],
)
def test_a_request_that_does_not_say_what_is_wanted_is_refused(told: object) -> None:
    with pytest.raises(BadRequest):
        read_wanted(told)


def test_a_request_is_read_as_it_was_written() -> None:
    name = BatchName.parse("paris/0102030405060708/orders.0>*/17")
    wanted = [Wanted(name, 3, bytes(range(16)), ("lima", "tokyo"))]
    assert read_wanted([one.as_json() for one in wanted]) == wanted
