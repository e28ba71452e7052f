"""Large messages that a site of two nodes keeps in its Cassandra, and not in its log."""

from __future__ import annotations

import asyncio
import random
import uuid
from pathlib import Path

import pytest

from relay.content.contents import MARGIN_S
from tests.journeys.application import at, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.content_site import (
    ANSWERS,
    EXCHANGES,
    OTHER,
    chunks_in,
    log_of,
    mesh_with_content,
    store_of,
)
from tests.journeys.several_nodes import SITE, SiteServers

MIB = 2**20


@pytest.mark.slow
async def test_one_body_in_three_exchanges_is_kept_once_and_arrives_three_times(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    chance = random.Random(7)
    catalogue, other = chance.randbytes(5 * MIB + 11), chance.randbytes(3 * MIB)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            boxes = [await paris.listen(exchange) for exchange in EXCHANGES]
            back = await tokyo.listen(ANSWERS)
            for exchange in EXCHANGES:
                await tokyo.post(exchange, letter(catalogue, str(uuid.uuid4())), letter(b"small"))
            await paris.post(ANSWERS, letter(other, str(uuid.uuid4())), letter(b"little"))
            for box in boxes:
                assert [m.body for m in await box.has(2)] == [catalogue, b"small"]
            assert [m.body for m in await back.has(2)] == [other, b"little"]
        in_log = sum(len(record.data) for record in await log_of(mesh, SITE))
        assert in_log < (3 * len(catalogue) + len(other)) / 100
        async with store_of(mesh) as session:
            lives = await asyncio.to_thread(chunks_in, session)
        pieces = {content_id for content_id, _ in lives}
        assert len(pieces) == 7 + 4
        kept_s = mesh.mesh.retention_s + MARGIN_S
        assert kept_s - 600 < min(lives.values()) <= max(lives.values()) <= kept_s
