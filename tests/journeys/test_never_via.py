"""Who may hold an exchange's messages, and who takes which of them, changed while the mesh runs."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.invariants import check_site
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.test_changes import pids
from tests.waiting import until

SITES = ("paris", "tokyo", "sydney", "lima")
COUNT = 300
EVERYTHING: dict[str, Any] = {site: {} for site in SITES}


def secret(**keys: Any) -> list[dict[str, Any]]:
    return [{"name": "orders", **keys}]


async def publish(mesh: LiveMesh, *to: str) -> None:
    """More from paris and lima; returns when these sites have them."""
    sources = [mesh.source(site) for site in ("paris", "lima")]
    for source in sources:
        await source.publish(COUNT)

    def missing() -> int:
        return sum(
            mesh.sinks[site].missing_of(source)
            for site in to
            for source in sources
            if source.origin != site
        )

    await until(lambda: not missing(), lambda: f"all there; missing {missing()}\n{mesh.logs()}", 60)


async def logged_at(mesh: LiveMesh, site: str) -> int:
    """Messages that the site's log has got since its node began."""
    return int((await mesh.status())["sites"][site]["log"]["appended_messages"])


@pytest.mark.slow
async def test_a_banned_site_holds_nothing_from_then_on_and_others_miss_nothing(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(
        *SITES, topology={"ring": {"both": True}}, exchanges=secret(), sites=EVERYTHING
    )
    await mesh.listen()
    mesh.start()
    await mesh.running()
    before = pids(await mesh.status())
    await publish(mesh, *SITES)

    await mesh.change(exchanges=secret(never_via=["tokyo"]))
    held = await logged_at(mesh, "tokyo")
    await publish(mesh, "sydney", "lima", "paris")  # by the other way round
    narrowed = {**EVERYTHING, "sydney": {"wants": {"orders": ["other.#"]}}}
    await mesh.change(sites=narrowed)
    await publish(mesh, "lima", "paris")
    assert await logged_at(mesh, "tokyo") == held

    await mesh.change(sites=EVERYTHING, exchanges=secret())
    await publish(mesh, "lima", "paris")
    assert pids(await mesh.status()) == before

    # What was packed while a site was not to get it is not for it, whatever the file says later.
    numbers = set(range(4 * COUNT))
    not_for = {
        "sydney": set(range(2 * COUNT, 3 * COUNT)),
        "tokyo": set(range(COUNT, 3 * COUNT)),
    }
    published = {
        site: {
            source.origin: {n: source.confirmed[n] for n in numbers - not_for.get(site, set())}
            for source in mesh.sources.values()
            if source.origin != site
        }
        for site in SITES
    }
    await until(
        lambda: all(
            bodies.keys() <= mesh.sinks[site].seen[origin]
            for site, of in published.items()
            for origin, bodies in of.items()
        ),
        lambda: f"all has come\n{mesh.logs()}",
        60,
    )
    for site, sink in mesh.sinks.items():
        check_site(site, sink.from_others(), published[site], most_flags=0)
