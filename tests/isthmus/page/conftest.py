"""Fixtures of the page's tests in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.isthmus.page.browser import chromium


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Any]:
    """One Chromium for the tests of a file, which need that file's loop."""
    async with chromium() as started:
        yield started
