"""The hot tail wakes those who wait: at once for what is theirs, now and then for what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from relay.batches.batch import BatchName, LoggedBatch, Place
from relay.log.hot_tail import LOOK_S, MAX_BYTES, HotTail
from tests.log_batches import batch
from tests.virtual_time import in_virtual_time, let_pass


def append(tail: HotTail, number: int, *to: str, nbytes: int = 100) -> None:
    header, _ = batch(number)
    series = header.name.series._replace(destinations=to)
    name = BatchName(series, number)
    tail.append(LoggedBatch(Place(number, name), replace(header, name=name), bytes(nbytes)))
    tail.appended()


def waiting(tail: HotTail, *only_for: Collection[str] | None) -> list[asyncio.Future[None]]:
    return [tail.changed(sites) for sites in only_for]


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
