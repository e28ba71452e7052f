"""Two sites with brokers of their own, whose nodes do not know each other's passwords."""

from __future__ import annotations

import pytest

from federation.names import Names
from isthmus.brokers.config import BrokerUser
from relay.bulk_amqp import AuthenticationFailed, connect
from tests.conftest import VhostFactory
from tests.journeys.conftest import MeshFactory
from tests.live_brokers import Vhost
from tests.waiting import until


def of_its_own(site: str, vhost: Vhost) -> dict[str, object]:
    """The site's keys in the mesh file."""
    return {
        "broker": f"amqp://{vhost.user}@{vhost.host}:{vhost.amqp_port}/{vhost.name}",
        "stream": f"rabbitmq-stream://{vhost.host}:{vhost.stream_port}",
        "management": vhost.management_url,
        "password": f"env:{site.upper()}_PASSWORD",
        "link_password": f"env:{site.upper()}_LINK",
        "users": "separate" if site == "paris" else "shared",
    }


async def two_brokers(
    vhost_factory: VhostFactory, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Vhost], dict[str, dict[str, str]]]:
    """By site: its virtual host, whose user may make users, and what its environment has."""
    vhosts = {site: await vhost_factory(site) for site in ("paris", "tokyo")}
    words: dict[str, dict[str, str]] = {}
    for site, vhost in vhosts.items():
        await vhost.add_user(BrokerUser(vhost.user, vhost.password, ("administrator",)))
        words[site] = {
            f"{site.upper()}_PASSWORD": vhost.password,
            f"{site.upper()}_LINK": f"of {vhost.name}",
        }
        for name, word in words[site].items():
            monkeypatch.setenv(name, word)
    return vhosts, words


async def test_links_run_though_no_node_has_the_password_of_another_sites_broker(
    live_mesh: MeshFactory, vhost_factory: VhostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    vhosts, words = await two_brokers(vhost_factory, monkeypatch)
    mesh = await live_mesh(
        topology="complete",
        sites={site: of_its_own(site, vhost) for site, vhost in vhosts.items()},
    )
    await mesh.listen()
    for site, other in (("paris", "tokyo"), ("tokyo", "paris")):
        # Paris's has users of its own, and needs nothing of the one that `apply` goes by.
        unknown = [*words[other], *(["PARIS_PASSWORD"] if site == "paris" else [])]
        mesh.environment = dict.fromkeys(unknown, "")
        mesh.start([site])
    await mesh.running()
    await mesh.publish_everywhere(300)
    await mesh.arrived()
    mesh.check(most_flags=0)
    # What paris shows at tokyo opens nothing else there, and paris's own broker not at all.
    user = BrokerUser(Names(mesh.mesh.name).link_user("paris"), words["paris"]["PARIS_LINK"])
    connection = await connect(vhosts["tokyo"].uri_as(user), name="a thief")
    await connection.close()
    with pytest.raises(AuthenticationFailed):
        await connect(vhosts["paris"].uri_as(user), name="a thief")


@pytest.mark.slow
async def test_a_mesh_that_runs_can_be_given_link_passwords_and_separate_users(
    live_mesh: MeshFactory, vhost_factory: VhostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    vhosts, _ = await two_brokers(vhost_factory, monkeypatch)
    sites = {site: of_its_own(site, vhost) for site, vhost in vhosts.items()}
    shared = {
        site: {key: value for key, value in keys.items() if key not in ("link_password", "users")}
        for site, keys in sites.items()
    }
    mesh = await live_mesh(topology="complete", sites=shared)
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    async with mesh.publishing(200):
        await mesh.change(sites=sites)
        await mesh.more_published(100)
    await mesh.arrived()
    mesh.check(most_flags=0)
    user = Names(mesh.mesh.name).link_user("paris")

    async def is_told() -> bool:
        listed = await vhosts["tokyo"].api("GET", "/vhosts/{vhost}/connections")
        return user in {one.get("user") for one in listed}

    await until(is_told, "paris's end at tokyo's broker as itself", 30, every_s=0.5)
