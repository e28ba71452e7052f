"""Large messages lost at either side of a site with a content store, and repaired through it."""

from __future__ import annotations

import random
import time
import uuid
from pathlib import Path

import pytest

from isthmus.demo import LOSSY_NODES, Loss
from relay.content.reference import ContentReference
from tests.journeys.application import Letter, Received, at, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.content_site import ANSWERS, OTHER, log_of, mesh_with_content
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.several_nodes import SITE, SiteServers
from tests.journeys.test_repair import Losing

MIB = 2**20


@pytest.mark.spark
@pytest.mark.long
async def test_lost_large_messages_are_named_and_repaired_out_of_the_store_and_into_it(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    chance = random.Random(21)
    lost, back, fine = (chance.randbytes(size * MIB) for size in (3, 4, 2))
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers, program=LOSSY_NODES)
        world = Losing(mesh)
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            there, here = await paris.listen("orders"), await tokyo.listen(ANSWERS)
            # Which no log but that of the site itself gets.
            await tokyo.post("orders", _lost(lost, OTHER), letter(fine, str(uuid.uuid4())))
            await paris.post(ANSWERS, _lost(back, SITE), letter(b"small", str(uuid.uuid4())))
            assert [m.body for m in await there.has(1)] == [fine]
            assert [m.body for m in await here.has(1)] == [b"small"]
            world.end_ms = time.time() * 1000 + 1
            stored = await _stored(mesh)
            assert stored == _pieces(lost) + _pieces(fine)

            status, told = await world.audit(tmp_path / "audit")
            assert (status, told["findings"]) == (1, {"lost": 2}), told
            audit = ("--audit", str(tmp_path / "audit"))
            status, told, error = await world.command("repair", *audit)
            assert status == 0, (told, error, mesh.logs())
            assert (told["sent"], told["problems"]) == ({OTHER: 1, SITE: 1}, {})
            assert (told["after"]["verdict"], told["after"]["findings"]) == ("proven", {}), told
            assert told["after"]["totals"] == {"delivered": 4, "repaired": 2}
            assert _repaired(await there.has(2)) == {"": fine, SITE: lost}
            assert _repaired(await here.has(2)) == {"": b"small", OTHER: back}
        # The pieces of the first came out of the store and went into it again, as the same bytes.
        assert await _stored(mesh) == stored + _pieces(back)
        in_log = await log_of(mesh, SITE)
        assert sum(len(record.data) for record in in_log) < len(fine) / 20
        references = [one for record in in_log if (one := ContentReference.decode(record.data))]
        assert len(references) == 2 * _pieces(lost) + _pieces(fine) + _pieces(back)


def _lost(body: bytes, site: str) -> Letter:
    """A message that the site's link receiver acknowledges, and the site's log never has."""
    return letter(body, str(uuid.uuid4()), x_demo_lose=Loss.LINK.at(site).encode())


def _pieces(body: bytes) -> int:
    """Pieces of a large message, with a content each."""
    return -(-len(body) // (768 * 1024))


async def _stored(mesh: LiveMesh) -> int:
    """Contents that the running node of SITE has written into the store."""
    stored: int = (await mesh.status())["sites"][SITE]["content"]["stored"]
    return stored


def _repaired(messages: list[Received]) -> dict[str, bytes]:
    """Bodies by the site that the message was repaired for, if it was."""
    return {m.text_header(b"x-mesh-repaired") or "": m.body for m in messages}
