"""A bench for the supervisor's tests, cleaned up at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.isthmus.supervisor_bench import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "state")
    bench.state.mkdir()
    try:
        yield bench
    finally:
        await bench.clean_up()
