"""Waits for the first of several works."""

from __future__ import annotations

import asyncio

import pytest

from relay.waiters import until_first_ends
from tests.virtual_time import in_virtual_time


async def waits(begun: asyncio.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


async def fails() -> None:
    raise ValueError("this work failed")


@in_virtual_time
async def test_the_first_end_ends_the_others() -> None:
    begun = asyncio.Event()
    other = asyncio.create_task(waits(begun))
    await until_first_ends(asyncio.create_task(begun.wait()), other)
    assert other.cancelled()


@in_virtual_time
async def test_a_failure_is_raised_once_the_others_have_ended() -> None:
    other = asyncio.create_task(waits(asyncio.Event()))
    with pytest.raises(ValueError, match="this work failed"):
        await until_first_ends(asyncio.create_task(fails()), other)
    assert other.cancelled()


@in_virtual_time
async def test_an_end_from_outside_is_kept_though_a_work_fails_as_it_ends() -> None:
    begun = asyncio.Event()

    async def fails_as_it_ends() -> None:
        try:
            await waits(begun)
        finally:
            raise ValueError

    waiting = asyncio.create_task(until_first_ends(asyncio.create_task(fails_as_it_ends())))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
