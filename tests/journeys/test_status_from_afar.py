"""Status asked from a machine that is none of the sites': what broke is said within 15 s."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.brokers.ports import free_ports
from isthmus.status import status_of
from tests.certificates import Authority, replaced
from tests.journeys.conftest import MeshFactory
from tests.waiting import until
from wan_proxy import LineCondition

pytestmark = pytest.mark.any_release

SITES = ("paris", "tokyo", "sydney")
SAID_WITHIN_S = 15.0


@pytest.mark.slow
async def test_a_cut_link_a_stopped_broker_and_a_killed_node_are_told_from_afar(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    link_cut = ("paris", "tokyo")
    mesh = await live_mesh(
        *SITES, own=("sydney",), wan={link_cut: LineCondition()}, topology="ring", both=True
    )
    ports = free_ports(len(SITES))
    for site, port in zip(SITES, ports, strict=True):
        mesh.document["sites"][site]["admin"] = f"http://127.0.0.1:{port}"
    authority = Authority("of the nodes")
    certificate, key = authority.issues().write(tmp_path, "tokyo")
    mesh.document["sites"]["tokyo"]["admin"] = {
        "url": f"https://127.0.0.1:{ports[1]}",
        "token": f"file:{replaced(tmp_path / 'token', b'0123456789abcdef')}",
        "certificate": str(certificate),
        "key": str(key),
        "ca": str(replaced(tmp_path / "ca.pem", authority.certificate)),
    }
    mesh.write()
    mesh.start_each()
    afar = tmp_path / "afar"

    async def status() -> dict[str, Any]:
        return (await status_of(mesh.mesh, afar)).content

    async def status_is(condition: Callable[[dict[str, Any]], bool], within_s: float) -> None:
        seen: dict[str, Any] = {}

        async def is_so() -> bool:
            nonlocal seen
            seen = await status()
            return condition(seen)

        await until(is_so, lambda: str(seen), within_s, every_s=0.2)

    def all_run(told: dict[str, Any]) -> bool:
        return all(p["state"] == "running" for p in [*told["sites"].values(), *told["links"]])

    def link(told: dict[str, Any], sender: str, receiver: str) -> dict[str, Any]:
        return next(k for k in told["links"] if (k["from"], k["to"]) == (sender, receiver))

    await status_is(all_run, 150)

    mesh.lines[link_cut].cut()
    await status_is(
        lambda told: (
            link(told, *link_cut)["state"] == "down"
            and "tokyo" in link(told, *link_cut)["reason"]
            and told["sites"]["tokyo"]["state"] == "running"
        ),
        SAID_WITHIN_S,
    )
    mesh.lines[link_cut].heal()

    mesh.vhosts["sydney"].broker.kill()
    await status_is(
        lambda told: (
            told["sites"]["sydney"]["state"] == "down" and told["sites"]["sydney"]["reason"] != ""
        ),
        SAID_WITHIN_S,
    )
    await status_is(lambda told: link(told, "paris", "sydney")["state"] == "down", SAID_WITHIN_S)

    mesh.kill("tokyo")
    await status_is(
        lambda told: (
            told["sites"]["tokyo"]["state"] == "unknown"
            and str(ports[1]) in told["sites"]["tokyo"]["reason"]
            and link(told, "tokyo", "paris")["state"] == "unknown"
        ),
        SAID_WITHIN_S,
    )
    assert not afar.joinpath("sites").exists()
