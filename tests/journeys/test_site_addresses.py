"""A site with several addresses: the node goes on over those that work."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import VhostFactory
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.live_brokers import Vhost
from wan_proxy import WanProxy

DEAD = "127.0.0.1:1"
BACK_WITHIN_S = 20.0
"""Patience after the address in use has died; a quiet machine takes a few seconds."""


async def lines_to(proxy: WanProxy, vhost: Vhost) -> dict[str, str]:
    """Names of the lines by address: two for AMQP, two for streams."""
    found = {}
    for kind, port in (("amqp", vhost.amqp_port), ("stream", vhost.stream_port)):
        for number in (1, 2):
            line = await proxy.open_line(f"{kind}-{number}", vhost.host, port)
            found[f"{line.host}:{line.port}"] = line.name
    return found


def of_paris(vhost: Vhost, lines: dict[str, str]) -> dict[str, Any]:
    """Keys of the site in the mesh file; the first address of each list is dead."""
    amqp, streams = (
        [DEAD, *(where for where, name in lines.items() if name.startswith(kind))]
        for kind in ("amqp", "stream")
    )
    return {
        "broker": [f"amqp://{vhost.user}@{where}/{vhost.name}" for where in amqp],
        "stream": [f"rabbitmq-stream://{where}" for where in streams],
        "password": "env:PARIS_PASSWORD",
    }


def in_use(told: dict[str, Any]) -> dict[str, str]:
    """Addresses at paris that the ends are connected to, by end."""
    found = dict(told["sites"]["paris"].get("connected_to", {}))
    for link in told["links"]:
        for end in ("connected_to", "receiver_connected_to"):
            if end in link:
                found[f"{link['from']}-{link['to']}: {end}"] = link[end]
    return found


async def a_mesh(
    live_mesh: MeshFactory,
    vhost_factory: VhostFactory,
    monkeypatch: pytest.MonkeyPatch,
    proxy: WanProxy,
) -> tuple[LiveMesh, dict[str, str]]:
    """Paris behind two lines for each protocol, tokyo without; all running."""
    vhosts = {site: await vhost_factory(site) for site in ("paris", "tokyo")}
    lines = await lines_to(proxy, vhosts["paris"])
    monkeypatch.setenv("PARIS_PASSWORD", vhosts["paris"].password)
    monkeypatch.setenv("TOKYO_PASSWORD", vhosts["tokyo"].password)
    tokyo = vhosts["tokyo"]
    mesh = await live_mesh(
        topology="complete",
        sites={
            "paris": of_paris(vhosts["paris"], lines),
            "tokyo": {
                "broker": f"amqp://{tokyo.user}@{tokyo.host}:{tokyo.amqp_port}/{tokyo.name}",
                "stream": f"rabbitmq-stream://{tokyo.host}:{tokyo.stream_port}",
                "password": "env:TOKYO_PASSWORD",
            },
        },
    )
    # What publishes and consumes here is no part of the trial.
    monkeypatch.setattr(mesh, "uri", lambda site: vhosts[site].amqp_uri)
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    return mesh, lines


async def test_a_node_goes_on_over_another_address_when_the_one_in_use_dies(
    live_mesh: MeshFactory, vhost_factory: VhostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WanProxy(seed=1) as proxy:
        mesh, lines = await a_mesh(live_mesh, vhost_factory, monkeypatch, proxy)
        used = in_use(await mesh.status())
        assert set(used) == {
            *("egress", "exchange", "log"),
            *("tokyo-paris: connected_to", "tokyo-paris: receiver_connected_to"),
        }
        assert DEAD not in used.values()
        async with mesh.publishing(100):
            for dead in (used["egress"], used["log"]):
                await mesh.more_published(50)
                await proxy.close_line(lines.pop(dead))
                await mesh.until_told(
                    lambda told: len(now := in_use(told)) == 5 and set(now.values()) <= set(lines),
                    "every end is connected over what is left",
                    within_s=BACK_WITHIN_S,
                )
                await mesh.running(within_s=BACK_WITHIN_S)
                await mesh.more_published(50)
        await mesh.arrived()
        mesh.check()


async def test_a_site_is_begun_again_at_the_addresses_that_its_list_has_now(
    live_mesh: MeshFactory, vhost_factory: VhostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WanProxy(seed=1) as proxy:
        mesh, _ = await a_mesh(live_mesh, vhost_factory, monkeypatch, proxy)
        used = in_use(await mesh.status())["egress"]
        sites = dict(mesh.document["sites"])
        left = [one for one in sites["paris"]["broker"] if used not in one]
        await mesh.change(sites=sites | {"paris": sites["paris"] | {"broker": left}})
        await mesh.until_told(
            lambda told: len(in_use(told)) == 5 and used not in in_use(told).values(),
            "no end uses an address that was taken out",
        )
        await mesh.publish_everywhere(100)
        await mesh.arrived()
        mesh.check(most_flags=0)
