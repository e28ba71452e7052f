"""Passwords of a site's users are exchanged as docs/security.md says, while everything runs."""

from __future__ import annotations

import asyncio
import json
import secrets

import pytest

from federation.brokers.addresses import AmqpAddress
from federation.brokers.credentials import SECRETS_FILE
from relay.bulk_amqp import AuthenticationFailed, connect
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.live_brokers import rabbitmqctl

KINDS = ("relay", "packer", "log", "keeper", "monitor", "link")


def of_node(mesh: LiveMesh) -> list[AmqpAddress]:
    """As whom paris's node logs in by AMQP, and where."""
    book = mesh.book
    ends = [book.link_end(link, "paris") for link in book.mesh.links]
    return [book.deliverer("paris"), book.packer("paris"), book.keeper("paris"), *ends]


async def test_passwords_are_exchanged_under_load_and_the_former_ones_open_nothing(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "tokyo", topology="complete")
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    former = of_node(mesh)
    thief = await connect(former[0].uri, name="a thief")
    async with mesh.publishing(200):
        file = mesh.state / SECRETS_FILE
        content = json.loads(file.read_text())
        content["sites"]["paris"] |= {kind: secrets.token_urlsafe() for kind in KINDS}
        temporary = file.with_suffix(".new")
        temporary.write_text(json.dumps(content, indent=1))
        temporary.replace(file)
        await mesh.apply()
        for address in former:
            with pytest.raises(AuthenticationFailed):
                await connect(address.uri, name="with the former password")
        # Open connections outlive their password: they are closed, the node's own with them.
        broker = mesh.vhosts["paris"].broker
        await rabbitmqctl(broker, "close_all_user_connections", former[0].user, "exchanged")
        async with asyncio.timeout(10):
            await thief.wait_closed()
        await mesh.more_published(100)
    await mesh.running()
    await mesh.arrived()
    mesh.check(most_flags=300)
    now = of_node(mesh)
    assert {one.user for one in now} == {one.user for one in former}
    assert not {one.password for one in now} & {one.password for one in former}
    for address in now:
        connection = await connect(address.uri, name="with the new password")
        await connection.close()

    assert mesh.processes["paris"].poll() is None, "it never ended"
