"""One site of a mesh on a virtual host of its own, and what a test does there."""

from __future__ import annotations

from pathlib import Path

import aio_pika

from federation.brokers.addresses import (
    AddressBook,
    AmqpAddress,
    PrivateBroker,
    write_private_brokers,
)
from federation.brokers.apply import apply_site
from federation.brokers.apply_report import ItemOutcome, SiteReport
from federation.brokers.credentials import load_or_make
from federation.brokers.users import site_users
from federation.mesh import Mesh
from federation.names import Names
from isthmus.brokers.config import BrokerUser
from tests.federation.meshes import mesh_of
from tests.live_brokers import Vhost

FILE = """\
mesh: MESH
outage_window: 1h
topology: ring
both: true
exchanges:
  - {name: orders, keys: ["order.#", "cancel"]}
  - {name: prices, from: [paris], to: [tokyo, sydney], mode: split}
  - {name: news, type: fanout}
  - {name: tagged, type: headers}
sites: {paris: {}, tokyo: {}, sydney: {}}
"""

ORDERS = '- {name: orders, keys: ["order.#", "cancel"]}'


class Site:
    """One site of a mesh on a virtual host of its own, and what a test does there."""

    def __init__(self, vhost: Vhost, mesh: Mesh, name: str, state: Path) -> None:
        self.vhost, self.mesh, self.name, self.state = vhost, mesh, name, state
        self.names = Names(mesh.name)

    @property
    def book(self) -> AddressBook:
        spec = self.vhost.broker.spec
        here = PrivateBroker(
            spec.amqp_port, spec.stream_port, spec.management_port, vhost=self.vhost.name
        )
        return AddressBook(self.mesh, load_or_make(self.state, self.mesh), {self.name: here}, {})

    async def make_admin(self) -> None:
        """What `isthmus up` does at boot."""
        users = {u.name: u for u in site_users(self.mesh, self.name, self.book.credentials)}
        admin = users[self.names.admin_user(self.name)]
        await self.vhost.add_user(BrokerUser(admin.name, admin.password, tags=admin.tags))

    async def apply(self) -> SiteReport:
        return await apply_site(self.book, self.name, self.state)

    def becomes(self, text: str) -> None:
        self.mesh = mesh_of(text.replace("MESH", self.mesh.name))

    async def queue(self, name: str) -> dict[str, object]:
        found = await self.vhost.api("GET", f"/queues/{{vhost}}/{name}")
        assert isinstance(found, dict)
        return found

    async def keys_bound(self, queue: str) -> set[tuple[str, str]]:
        found = await self.vhost.api("GET", f"/queues/{{vhost}}/{queue}/bindings")
        return {(one["source"], one["routing_key"]) for one in found if one["source"]}


async def mesh_file_on(vhost: Vhost, site: str, text: str, folder: Path) -> tuple[Path, Path]:
    """A mesh file, and the state folder where `up` has noted that the private broker of `site` is
    that virtual host, with its users. MESH in the text becomes a name of the test's own.
    """
    text = text.replace("MESH", vhost.name.replace(".", "-"))
    file, state, mesh = folder / "mesh.yaml", folder / "state", mesh_of(text)
    file.write_text(text)
    spec = vhost.broker.spec
    ports = (spec.amqp_port, spec.stream_port, spec.management_port)
    write_private_brokers(state, {site: PrivateBroker(*ports, vhost=vhost.name)})
    for user in site_users(mesh, site, load_or_make(state, mesh)):
        await vhost.add_user(
            BrokerUser(user.name, user.password, user.tags, user.configure, user.write, user.read)
        )
    return file, state


def outcomes(report: SiteReport, kind: str) -> dict[str, ItemOutcome]:
    return {item.name: item.outcome for item in report.items if item.kind == kind}


async def publish(address: AmqpAddress, exchange: str, key: str) -> None:
    connection = await aio_pika.connect(address.uri)
    async with connection:
        channel = await connection.channel()
        target = await channel.get_exchange(exchange, ensure=False)
        await target.publish(aio_pika.Message(b"hello"), key)


async def take(address: AmqpAddress, queue: str) -> bytes:
    connection = await aio_pika.connect(address.uri)
    async with connection:
        channel = await connection.channel()
        message = await (await channel.get_queue(queue, ensure=False)).get(timeout=5)
        assert message is not None
        await message.ack()
        return message.body
