"""Apply on a real broker: sites are virtual hosts of one, which is all a site is."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel as Channel
from aio_pika.exceptions import AMQPException

from federation.addresses import AddressBook, AmqpAddress, PrivateBroker
from federation.apply import apply_site
from federation.apply_report import Item, Outcome, SiteReport
from federation.credentials import load_or_make
from federation.mesh import Mesh
from federation.names import Names
from federation.provision import LOG_SEGMENT_BYTES, NEVER_DROP, site_users
from isthmus.local_brokers import BrokerUser
from tests.conftest import Eventually
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
        for name in (self.names.admin_user(self.name), self.names.relay_user(self.name)):
            user = users[name]
            await self.vhost.add_user(BrokerUser(name, user.password, tags=user.tags))

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


@pytest.fixture
async def paris(vhost: Vhost, tmp_path: Path) -> Site:
    """Paris, whose broker has no more than `isthmus up` makes."""
    # Users belong to the whole broker: the mesh of each test has a name of its own.
    mesh = mesh_of(FILE.replace("MESH", vhost.name.replace(".", "-")))
    site = Site(vhost, mesh, "paris", tmp_path / "state")
    await site.make_admin()
    return site


def outcomes(report: SiteReport, kind: str) -> dict[str, Outcome]:
    return {item.name: item.outcome for item in report.items if item.kind == kind}


async def test_a_first_apply_makes_all_that_the_site_needs(paris: Site) -> None:
    names = paris.names
    report = await paris.apply()
    assert report.ok, report.faults
    assert report.unchecked == ()
    assert set(outcomes(report, "exchange")) >= {"orders", "prices", "news", "tagged"}
    assert "prices.in" not in outcomes(report, "exchange")
    assert await paris.keys_bound(names.egress("orders")) == {
        ("orders", "order.#"),
        ("orders", "cancel"),
    }
    assert await paris.keys_bound(names.egress("news")) == {("news", "")}


async def test_a_second_apply_has_nothing_to_do(paris: Site) -> None:
    await paris.apply()
    again = await paris.apply()
    assert again.changes == ()
    assert again.faults == ()
    assert {item.outcome for item in again.items} == {Outcome.THERE}


async def test_queues_are_made_so_that_no_version_of_the_broker_drops_what_comes_back(
    paris: Site,
) -> None:
    await paris.apply()
    names = paris.names
    for name in (names.egress("orders"), names.dead_letters, names.quarantine):
        arguments = (await paris.queue(name))["arguments"]
        assert arguments == {"x-queue-type": "quorum", "x-delivery-limit": NEVER_DROP}


async def test_the_log_keeps_the_window_by_a_policy_that_can_change(
    paris: Site, eventually: Eventually
) -> None:
    await paris.apply()
    names = paris.names

    log = await paris.queue(names.log)
    assert log["arguments"] == {
        "x-queue-type": "stream",
        "x-stream-max-segment-size-bytes": LOG_SEGMENT_BYTES,
    }

    paris.becomes(FILE.replace("1h", "2h"))
    report = await paris.apply()
    assert report.ok, report.faults
    assert [item.detail for item in report.changes] == ["max-age 4500s is now max-age 8100s"]

    async def is_in_force() -> bool:
        found = await paris.queue(names.log)
        return (found.get("policy"), found.get("effective_policy_definition")) == (
            names.log_policy,
            {"max-age": "8100s"},
        )

    await eventually(is_in_force, "the log's new policy")


async def test_another_policy_that_wins_over_ours_is_told(paris: Site) -> None:
    await paris.apply()
    policy = {"pattern": ".*", "definition": {"max-age": "1h"}, "priority": 99}
    await paris.vhost.api("PUT", "/policies/{vhost}/greedy", policy | {"apply-to": "queues"})
    report = await paris.apply()
    assert [(f.kind, f.outcome) for f in report.faults] == [("policy", Outcome.DIFFERS)]
    assert "'greedy'" in report.faults[0].detail


async def test_what_is_there_with_other_arguments_is_left_alone_and_told(paris: Site) -> None:
    egress = paris.names.egress("orders")
    connection = await aio_pika.connect(paris.vhost.amqp_uri)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue(egress, durable=True)
        await channel.declare_exchange("news", "topic", durable=True)
    report = await paris.apply()
    faults = {fault.name: fault for fault in report.faults}
    assert set(faults) == {egress, "news"}
    assert {fault.outcome for fault in faults.values()} == {Outcome.DIFFERS}
    assert "x-queue-type" in faults[egress].detail
    assert "delete the queue" in faults[egress].mend
    assert "'topic'" in faults["news"].detail
    # The rest went on.
    assert outcomes(report, "queue")[paris.names.log] is Outcome.CREATED
    assert (await paris.queue(egress))["type"] == "classic"


async def test_an_exchange_taken_out_of_the_file_is_unbound_and_its_queue_stays(
    paris: Site,
) -> None:
    await paris.apply()
    egress = paris.names.egress("orders")
    await publish(paris.book.application("paris"), "orders", "order.1")
    paris.becomes(FILE.replace(ORDERS, ""))
    report = await paris.apply()
    assert report.ok, report.faults
    assert [item.outcome for item in report.changes] == [Outcome.UNBOUND, Outcome.UNBOUND]
    assert await paris.keys_bound(egress) == set()
    # What waits in it is told for as long as it does.
    for again in (report, await paris.apply()):
        [left] = [item for item in again.items if item.outcome is Outcome.LEFT]
        assert left.name == egress
        assert left.detail.startswith("1 messages wait in it")
    await take(paris.book.node("paris"), egress)
    last = await paris.apply()
    assert {item.outcome for item in last.items} == {Outcome.THERE}


async def test_an_exchange_put_back_into_the_file_is_bound_again(paris: Site) -> None:
    await paris.apply()
    paris.becomes(FILE.replace(ORDERS, ""))
    await paris.apply()
    paris.becomes(FILE)
    report = await paris.apply()
    assert report.ok, report.faults
    assert [(item.kind, item.outcome) for item in report.changes] == [
        ("binding", Outcome.CREATED),
        ("binding", Outcome.CREATED),
    ]


async def test_a_binding_of_egress_that_somebody_else_made_is_told_and_left(paris: Site) -> None:
    await paris.apply()
    egress = paris.names.egress("orders")
    connection = await aio_pika.connect(paris.vhost.amqp_uri)
    async with connection:
        channel = await connection.channel()
        await (await channel.get_queue(egress)).bind("amq.topic", "x")
    report = await paris.apply()
    assert [(fault.kind, fault.outcome) for fault in report.faults] == [
        ("binding", Outcome.DIFFERS)
    ]
    assert ("amq.topic", "x") in await paris.keys_bound(egress)


async def test_a_neighbour_that_no_link_brings_any_more_is_told(paris: Site) -> None:
    await paris.apply()
    paris.becomes(FILE.replace("both: true", "both: false"))
    report = await paris.apply()
    assert report.ok, report.faults
    [left] = [item for item in report.items if item.outcome is Outcome.LEFT]
    assert left.name == paris.names.link_user("tokyo")
    assert left.mend.startswith("rabbitmqctl clear_permissions")


async def test_without_a_management_api_former_bindings_are_known_from_the_last_apply(
    paris: Site,
) -> None:
    text = FILE.replace(
        "paris: {}",
        f"paris: {{broker: '{without_password(paris.vhost)}', password: 'env:PW'}}",
    )
    site = OwnBroker(paris, text)
    first = await site.apply()
    assert first.ok, first.faults
    assert [(i.kind, i.outcome) for i in first.unchecked] == [
        ("policy", Outcome.UNCHECKED),
        ("binding", Outcome.UNCHECKED),
    ]
    assert first.unchecked[0].mend.startswith("rabbitmqctl set_policy")
    site.becomes(text.replace(', "cancel"', ""))
    second = await site.apply()
    assert [item.outcome for item in second.changes] == [Outcome.UNBOUND]
    assert await paris.keys_bound(paris.names.egress("orders")) == {("orders", "order.#")}


async def test_at_a_broker_of_ones_own_users_are_left_to_its_administrator(paris: Site) -> None:
    management = paris.vhost.management_url
    text = FILE.replace(
        "paris: {}",
        f"paris: {{broker: '{without_password(paris.vhost)}', password: 'env:PW', "
        f"management: '{management}'}}",
    )
    site = OwnBroker(paris, text)
    report = await site.apply()
    assert report.ok, report.faults
    assert outcomes(report, "user") == {}
    assert site.book.node("paris").user == paris.vhost.user


async def test_a_wrong_password_is_told_and_nothing_is_raised(paris: Site) -> None:
    text = FILE.replace(
        "paris: {}",
        f"paris: {{broker: '{without_password(paris.vhost)}', password: 'env:PW', "
        f"management: '{paris.vhost.management_url}'}}",
    )
    site = OwnBroker(paris, text, password="wrong")
    report = await site.apply()
    assert [(fault.kind, fault.outcome) for fault in report.faults] == [("broker", Outcome.FAILED)]
    assert "wrong" not in str(report)
    assert report.unchecked[0].kind == "policy"


async def test_a_user_whose_password_was_changed_gets_the_right_one_again(paris: Site) -> None:
    await paris.apply()
    user = paris.names.link_user("tokyo")
    await paris.vhost.api("PUT", f"/users/{user}", {"password": "other", "tags": ""})
    report = await paris.apply()
    assert [(item.kind, item.name) for item in report.changes] == [("user", user)]
    assert (await paris.apply()).changes == ()


class OwnBroker(Site):
    """The same site with `broker:` in the mesh file."""

    def __init__(self, like: Site, text: str, password: str | None = None) -> None:
        super().__init__(like.vhost, like.mesh, like.name, like.state)
        self._password = password or like.vhost.password
        self.becomes(text)

    @property
    def book(self) -> AddressBook:
        credentials = load_or_make(self.state, self.mesh)
        return AddressBook(self.mesh, credentials, {}, {"PW": self._password})


def without_password(vhost: Vhost) -> str:
    return f"amqp://{vhost.user}@{vhost.host}:{vhost.amqp_port}/{vhost.name}"


# Rights


async def test_a_link_user_can_write_its_data_and_read_its_acks(paris: Site) -> None:
    await paris.apply()
    names = paris.names
    link = next(one for one in paris.mesh.links_to("paris") if one.sender == "tokyo")
    address = paris.book.link_end(link, "tokyo")
    assert address.user == names.link_user("tokyo")
    connection = await aio_pika.connect(address.uri)
    async with connection:
        channel = await connection.channel(on_return_raises=False)
        acks = await channel.declare_queue(names.sender_queue(link), exclusive=True)
        await acks.bind(names.link_acks(link))
        data = await channel.get_exchange(names.link_data(link), ensure=False)
        message = aio_pika.Message(b"batch", user_id=address.user)
        assert await data.publish(message, "") is not None


async def test_a_link_user_can_do_nothing_else(paris: Site) -> None:
    await paris.apply()
    names = paris.names
    mine = next(one for one in paris.mesh.links_to("paris") if one.sender == "tokyo")
    other = next(one for one in paris.mesh.links_to("paris") if one.sender == "sydney")
    connection = await aio_pika.connect(paris.book.link_end(mine, "tokyo").uri)

    async def publish_to(channel: Channel, exchange: str, user: str | None = None) -> None:
        target = await channel.get_exchange(exchange, ensure=False)
        await target.publish(aio_pika.Message(b"", user_id=user), names.egress("orders"))

    async def bind_to(channel: Channel, exchange: str) -> None:
        queue = await channel.declare_queue(names.sender_queue(mine), exclusive=True)
        await queue.bind(exchange)

    async def read(channel: Channel, queue: str) -> None:
        await (await channel.get_queue(queue, ensure=False)).get(fail=False)

    attempts: dict[str, Callable[[Channel], Awaitable[object]]] = {
        "publish to orders": lambda channel: publish_to(channel, "orders"),
        "publish to own acks": lambda channel: publish_to(channel, names.link_acks(mine)),
        "publish to another's data": lambda channel: publish_to(channel, names.link_data(other)),
        "publish to the default exchange": lambda channel: publish_to(channel, ""),
        "publish as another": lambda channel: publish_to(
            channel, names.link_data(mine), names.link_user("sydney")
        ),
        "bind to orders": lambda channel: bind_to(channel, "orders"),
        "bind to own data": lambda channel: bind_to(channel, names.link_data(mine)),
        "read egress": lambda channel: read(channel, names.egress("orders")),
        "read the log": lambda channel: read(channel, names.log),
        "make any queue": lambda channel: channel.declare_queue("any", exclusive=True),
        "make a queue with another's prefix": lambda channel: channel.declare_queue(
            names.sender_queue(other), exclusive=True
        ),
        "make an exchange": lambda channel: channel.declare_exchange("any"),
        "delete own data exchange": lambda channel: channel.exchange_delete(names.link_data(mine)),
    }
    allowed = []
    async with connection:
        for what, attempt in attempts.items():
            # A refusal closes the channel, so each has its own.
            channel = await connection.channel()
            try:
                await attempt(channel)
            except AMQPException as error:
                if not re.search("ACCESS_REFUSED|user_id property", str(error)):
                    raise
            else:
                allowed.append(what)
    assert allowed == []


async def test_an_application_cannot_touch_what_is_isthmus_s(paris: Site) -> None:
    await paris.apply()
    names = paris.names
    link = paris.mesh.links_to("paris")[0]
    address = paris.book.application("paris")
    with pytest.raises(AMQPException, match="ACCESS_REFUSED"):
        await publish(address, names.link_data(link), "")
    connection = await aio_pika.connect(address.uri)
    async with connection:
        channel = await connection.channel()
        # What any client does: a queue of its own, of a name that the broker makes.
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("orders", "#")
        with pytest.raises(AMQPException, match="ACCESS_REFUSED"):
            await channel.declare_queue(names.egress("other"))


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


async def test_all_of_a_headers_exchange_leaves(paris: Site) -> None:
    await paris.apply()
    connection = await aio_pika.connect(paris.book.application("paris").uri)
    async with connection:
        channel = await connection.channel()
        target = await channel.get_exchange("tagged", ensure=False)
        await target.publish(aio_pika.Message(b"bare"), "")
        await target.publish(aio_pika.Message(b"tagged", headers={"colour": "red"}), "k")
    node, egress = paris.book.node("paris"), paris.names.egress("tagged")
    assert [await take(node, egress) for _ in range(2)] == [b"bare", b"tagged"]


def test_a_report_counts_what_differs_as_a_fault_and_what_nobody_checked_as_none() -> None:
    report = SiteReport(
        "paris",
        (
            Item("queue", "a", Outcome.CREATED),
            Item("queue", "b", Outcome.DIFFERS),
            Item("policy", "c", Outcome.UNCHECKED),
        ),
    )
    assert [item.name for item in report.changes] == ["a"]
    assert [item.name for item in report.faults] == ["b"]
    assert [item.name for item in report.unchecked] == ["c"]
    assert not report.ok
