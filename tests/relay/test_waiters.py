"""Waits for the first of several works."""

from __future__ import annotations

import asyncio

import pytest

from relay.waiters import until_first_ends
from tests.virtual_time import in_virtual_time


async def fail(after_s: float) -> None:
    await asyncio.sleep(after_s)
    raise ValueError(f"failed after {after_s} s")


@in_virtual_time
async def test_the_first_end_ends_the_others() -> None:
    first, other = asyncio.create_task(asyncio.sleep(1)), asyncio.create_task(fail(2))
    await until_first_ends(first, other)
    assert other.cancelled()


@in_virtual_time
async def test_a_failure_is_raised_once_the_others_have_ended() -> None:
    other = asyncio.create_task(asyncio.sleep(9))
    with pytest.raises(ValueError, match="after 1 s"):
        await until_first_ends(asyncio.create_task(fail(1)), other)
    assert other.cancelled()


@in_virtual_time
async def test_an_end_from_outside_is_kept_though_a_work_fails_as_it_ends() -> None:
    async def fails_as_it_ends() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError

    waiting = asyncio.create_task(until_first_ends(asyncio.create_task(fails_as_it_ends())))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
