"""The hot tail wakes those who wait: at once for what is theirs, now and then for what is not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from relay.batches.batch import BatchHeader, BatchName, LoggedBatch, Place
from relay.log.hot_tail import LOOK_A_READER_S, LOOK_S, MAX_BYTES, HotTail, Wish
from tests.log_batches import batch
from tests.virtual_time import in_virtual_time, let_pass


def append(tail: HotTail, number: int, *to: str, nbytes: int = 100) -> None:
    header, _ = batch(number)
    series = header.name.series._replace(destinations=to)
    name = BatchName(series, number)
    tail.append(LoggedBatch(Place(number, name), replace(header, name=name), bytes(nbytes)))
    tail.appended()


def any_batch(_: BatchHeader) -> bool:
    return True


def waiting(tail: HotTail, *for_sites: list[str] | None) -> list[asyncio.Future[None]]:
    return [
        tail.changed(None if sites is None else Wish(tuple(sites), any_batch))
        for sites in for_sites
    ]


async def woken(*tasks: asyncio.Future[None]) -> list[bool]:
    await let_pass(0.001)
    return [task.done() for task in tasks]


@in_virtual_time
async def test_a_batch_for_one_site_wakes_who_waits_for_it_and_who_waits_for_any() -> None:
    tail = HotTail()
    tasks = waiting(tail, ["s1"], ["s2"], ["s1", "s3"], None)
    append(tail, 0, "s1", "s9")
    assert await woken(*tasks) == [True, False, True, True]
    await let_pass(LOOK_S)
    assert await woken(*tasks) == [True, True, True, True]


@in_virtual_time
async def test_a_batch_for_every_site_wakes_all() -> None:
    tail = HotTail()
    tasks = waiting(tail, ["s1"], ["s2"], None)
    append(tail, 0)
    assert await woken(*tasks) == [True, True, True]


@in_virtual_time
async def test_a_batch_wakes_nobody_who_does_not_want_it_until_the_next_look() -> None:
    tail = HotTail()
    wanted: list[BatchHeader] = []

    def wants(header: BatchHeader) -> bool:
        wanted.append(header)
        return header.name.sequence == 2

    waiter = tail.changed(Wish(("s1", "s2"), wants))
    append(tail, 0)
    append(tail, 1, "s1")
    assert await woken(waiter) == [False]
    append(tail, 2, "s2")
    assert await woken(waiter) == [True]
    assert [header.name.sequence for header in wanted] == [0, 1, 2]
    later = tail.changed(Wish(("s1",), wants))
    append(tail, 3, "s1")
    assert await woken(later) == [False]
    await let_pass(LOOK_A_READER_S)
    assert await woken(later) == [True]


@in_virtual_time
async def test_links_are_woken_before_readers_of_every_batch() -> None:
    tail = HotTail()
    order: list[str] = []
    for name, sites in (("deliverer", None), ("link", ["s1"])):
        (waiter,) = waiting(tail, sites)
        waiter.add_done_callback(lambda _, name=name: order.append(name))
    append(tail, 0, "s1")
    await let_pass(0.001)
    assert order == ["link", "deliverer"]


@in_virtual_time
async def test_many_batches_at_once_wake_all_whom_one_of_them_is_for() -> None:
    tail = HotTail()
    tasks = waiting(tail, ["s1"], ["s2"], ["s3"])
    header, data = batch(0)
    for number, site in enumerate(("s1", "s3")):
        name = BatchName(header.name.series._replace(destinations=(site,)), number)
        tail.append(LoggedBatch(Place(number, name), replace(header, name=name), data))
    tail.appended()
    assert await woken(*tasks) == [True, False, True]


@in_virtual_time
async def test_who_waits_for_other_batches_never_falls_out_of_the_tail_for_that() -> None:
    tail = HotTail()
    (task,) = waiting(tail, ["s1"])
    number = 0
    while not task.done():
        append(tail, number, "s2", nbytes=MAX_BYTES // 16)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        number += 1
    assert tail.take(0, 1) is not None


@in_virtual_time
async def test_a_wake_is_for_all_and_leaves_nothing_to_come() -> None:
    tail = HotTail()
    tasks = waiting(tail, ["s1"], None)
    append(tail, 0, "s2")
    tail.wake()
    assert await woken(*tasks) == [True, True]
    (again,) = waiting(tail, ["s1"])
    await let_pass(2 * LOOK_S)
    assert await woken(again) == [False]
    again.cancel()


@in_virtual_time
async def test_who_waits_no_more_is_forgotten() -> None:
    tail = HotTail()
    (task,) = waiting(tail, ["s1"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    append(tail, 0, "s2")
    append(tail, 1, "s1")
    (later,) = waiting(tail, ["s1"])
    append(tail, 2, "s1")
    assert await woken(later) == [True]
