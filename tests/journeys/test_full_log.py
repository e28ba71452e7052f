"""A log that may take only so much disk: a cut link fills it, and the site stops taking."""

from __future__ import annotations

import os

import pytest

from federation.names import Names
from tests.journeys.application import at, letter
from tests.journeys.conftest import MeshFactory
from tests.waiting import until
from wan_proxy import LineCondition

BODY = 512 * 1024
LIMIT = 256 * 2**20
PAIR = ("paris", "tokyo")


@pytest.mark.long
async def test_a_full_log_stops_the_packer_and_what_it_holds_arrives_after_the_cut(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(
        *PAIR,
        wan={PAIR: LineCondition()},
        topology="complete",
        log={"max_bytes": "256MiB", "on_full": "block"},
    )
    vhost = mesh.vhosts["paris"]
    log = await vhost.api("GET", f"/policies/{{vhost}}/{Names(mesh.mesh.name).log_policy}")
    assert log["definition"]["max-length-bytes"] == LIMIT
    mesh.start_each()
    await mesh.running()
    mesh.lines[PAIR].cut()
    total = 1.3 * LIMIT // BODY
    async with at(mesh, *PAIR) as (paris, tokyo):
        inbox = await tokyo.listen("orders")
        number = 0
        while number < total:
            group = [letter(b"%08d" % (number + n) + os.urandom(BODY - 8)) for n in range(20)]
            outcome = await paris.post("orders", *group)
            assert not outcome.nacked
            number += len(group)
        told = await mesh.until_told(
            lambda told: told if told["sites"]["paris"]["state"] == "blocked" else None,
            "paris says that its log is full",
            within_s=180,
        )
        assert "wait for tokyo" in told["sites"]["paris"]["reason"]

        # What is left stays in egress, where publishers feel it if it comes to that.
        seen: list[int] = []

        async def stands() -> bool:
            paris = (await mesh.status())["sites"]["paris"]
            seen.append(paris["log"]["stored_bytes"])
            # The last of many looks say the same.
            return paris["egress_messages"] > 0 and len(set(seen[-15:])) == 1 and len(seen) > 15

        await until(stands, lambda: f"paris takes nothing more: {seen[-15:]}", 120, every_s=0.2)
        told = (await mesh.status())["sites"]["paris"]
        assert told["log"]["stored_bytes"] < LIMIT

        mesh.lines[PAIR].heal()
        await inbox.has(number, within_s=300)
        assert [int(body[:8]) for body in inbox.bodies] == list(range(number))
        assert not any(message.flagged for message in inbox.got)
        await mesh.running()
