"""Deliveries of these tests go ahead as under load, though their chunks are small."""

from __future__ import annotations

import pytest

from relay.delivery import flow_queue


@pytest.fixture(autouse=True)
def small_chunks_go_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_queue, "PLENTY_ENTRIES", 1)
