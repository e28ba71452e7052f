"""Partitions at a real broker: made, changed while nothing waits, refused without the plugin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import aio_pika
import pytest

from federation.brokers import apply
from federation.brokers.addresses import AddressBook
from federation.brokers.apply_report import Item, ItemOutcome, SiteReport
from federation.brokers.hash_probe import KNOWN_HASH, probe_hash
from isthmus.brokers.config import PLUGINS
from isthmus.brokers.local_brokers import LocalBroker
from tests.conftest import Eventually, LocalBrokerFactory
from tests.federation.live_site import FILE, ORDERS, Site, publish, take
from tests.federation.meshes import mesh_of
from tests.live_brokers import START_WITHIN_S, own_vhost

KEYS = 'keys: ["order.#", "cancel"]'


def cut(partitions: int) -> str:
    return FILE.replace(ORDERS, f"- {{name: orders, {KEYS}, partitions: {partitions}}}")


async def bound_to(paris: Site, exchange: str) -> set[tuple[str, str]]:
    """Return (destination, key) of an exchange's bindings."""
    path = f"/exchanges/{{vhost}}/{exchange}/bindings/source"
    return {(b["destination"], b["routing_key"]) for b in await paris.vhost.api("GET", path)}


def faults(report: SiteReport) -> list[tuple[str, str, ItemOutcome]]:
    return [(fault.kind, fault.name, fault.outcome) for fault in report.faults]


async def test_partitions_are_made_and_messages_are_spread_over_them(paris: Site) -> None:
    paris.becomes(cut(3))
    report = await paris.apply()
    assert report.ok, report.faults
    names, orders = paris.names, paris.mesh.exchanges["orders"]
    assert await bound_to(paris, "orders") == {
        (names.partitions("orders"), "order.#"),
        (names.partitions("orders"), "cancel"),
    }
    queues = names.egress_queues(orders)
    assert await bound_to(paris, names.partitions("orders")) == {(queue, "") for queue in queues}
    again = await paris.apply()
    assert (again.changes, again.faults) == ((), ())
    for number in range(12):
        await publish(paris.book.application("paris"), "orders", f"order.{number}")
    waiting = [(await paris.queue(queue))["name"] for queue in queues]
    assert waiting == [*queues]
    taken = [await take_all(paris, queue) for queue in queues]
    assert sum(taken) == 12
    assert all(taken)


async def take_all(paris: Site, queue: str) -> int:
    found = await paris.vhost.api(
        "POST",
        f"/queues/{{vhost}}/{queue}/get",
        {"count": 100, "ackmode": "ack_requeue_false", "encoding": "auto"},
    )
    return len(found)


async def test_partitions_change_only_while_no_message_waits(paris: Site) -> None:
    await paris.apply()
    names = paris.names
    egress, spread = names.egress("orders"), names.partitions("orders")
    await publish(paris.book.application("paris"), "orders", "order.1")
    paris.becomes(cut(2))
    report = await paris.apply()
    assert faults(report) == [("partitions", "orders", ItemOutcome.DIFFERS)]
    assert "1 partition -> 2: 1 message in its egress queues" in report.faults[0].detail
    assert "an exchange of another name" in report.faults[0].mend
    assert {queue for queue, _ in await bound_to(paris, "orders")} == {egress}

    assert await take(paris.book.administrator("paris"), egress) == b"hello"
    report = await paris.apply()
    assert report.ok, report.faults
    assert {queue for queue, _ in await bound_to(paris, "orders")} == {spread}
    assert len(await bound_to(paris, spread)) == 2

    paris.becomes(FILE)
    await publish(paris.book.application("paris"), "orders", "order.1")
    await publish(paris.book.application("paris"), "orders", "order.2")
    report = await paris.apply()
    assert "2 partitions -> 1: 2 messages" in report.faults[0].detail
    for queue in (egress, names.egress("orders", 1)):
        await take_all(paris, queue)
    report = await paris.apply()
    assert report.ok, report.faults
    assert await bound_to(paris, spread) == set()
    assert {queue for queue, _ in await bound_to(paris, "orders")} == {egress}


async def test_messages_in_hand_count_as_waiting(paris: Site, eventually: Eventually) -> None:
    await paris.apply()
    egress = paris.names.egress("orders")
    await publish(paris.book.application("paris"), "orders", "order.1")
    connection = await aio_pika.connect(paris.book.administrator("paris").uri)
    async with connection:
        queue = await (await connection.channel()).get_queue(egress, ensure=False)
        message = await queue.get()
        assert message is not None

        async def is_told() -> bool:
            return (await paris.queue(egress)).get("messages_unacknowledged") == 1

        await eventually(is_told, "the message in hand is told of")
        paris.becomes(cut(2))
        report = await paris.apply()
        assert "1 message in its egress queues" in report.faults[0].detail
        await message.ack()


async def test_an_apply_that_was_cut_short_is_finished_by_the_next_one(paris: Site) -> None:
    names = paris.names
    several = cut(3).replace("tokyo: {}", "tokyo: {slots: 2}")
    paris.becomes(several)
    assert (await paris.apply()).ok
    orders, spread = paris.names.egress_queues(paris.mesh.exchanges["orders"]), "orders"
    # As if the connection had gone at the second binding.
    for key in ("order.#", "cancel"):
        await unbind(paris, spread, "e", names.partitions("orders"), key)
    await unbind(paris, names.partitions("orders"), "q", orders[2], "")
    (paris.state / "applied").rename(paris.state / "put-aside")
    assert (await paris.apply()).ok
    assert len(await bound_to(paris, "orders")) == 2
    assert len(await bound_to(paris, names.partitions("orders"))) == 3


async def test_an_exchange_that_leads_both_ways_is_mended_whatever_waits(paris: Site) -> None:
    paris.becomes(cut(2))
    await paris.apply()
    names = paris.names
    for key in ("order.#", "cancel"):
        path = f"/bindings/{{vhost}}/e/orders/q/{names.egress('orders')}"
        await paris.vhost.api("POST", path, {"routing_key": key})
    await publish(paris.book.application("paris"), "orders", "order.1")
    assert (await paris.apply()).ok
    assert {queue for queue, _ in await bound_to(paris, "orders")} == {names.partitions("orders")}


async def test_without_management_and_record_nothing_goes_both_ways(
    paris: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await paris.apply()
    paris.becomes(cut(2))
    (paris.state / "applied").rename(paris.state / "put-aside")
    monkeypatch.setattr(AddressBook, "management", lambda self, site: None)
    report = await paris.apply()
    assert report.ok, report.faults
    assert {queue for queue, _ in await bound_to(paris, "orders")} == {
        paris.names.partitions("orders")
    }


async def test_partitions_begin_only_where_no_message_waits_in_their_queues(paris: Site) -> None:
    await paris.apply()
    await publish(paris.book.application("paris"), "orders", "order.1")
    paris.becomes(FILE.replace(f"  {ORDERS}\n", ""))
    await paris.apply()
    paris.becomes(cut(2))
    report = await paris.apply()
    assert "none bound -> 2: 1 message in its egress queues" in report.faults[0].detail
    assert await take(paris.book.administrator("paris"), paris.names.egress("orders")) == b"hello"
    assert (await paris.apply()).ok


async def unbind(paris: Site, exchange: str, kind: str, name: str, key: str) -> None:
    """Take a binding away, by its key."""
    written = quote(key, safe="") or "~"
    await paris.vhost.api("DELETE", f"/bindings/{{vhost}}/e/{exchange}/{kind}/{name}/{written}")


async def test_partitions_do_not_change_where_a_site_has_several_slots(paris: Site) -> None:
    await paris.apply()
    paris.becomes(cut(2).replace("tokyo: {}", "tokyo: {slots: 2}"))
    report = await paris.apply()
    assert faults(report) == [("partitions", "orders", ItemOutcome.DIFFERS)]
    assert "cut into several slots: tokyo" in report.faults[0].detail
    assert "put the former number back" in report.faults[0].mend
    assert await bound_to(paris, paris.names.partitions("orders")) == set()


async def test_a_broker_with_another_hash_gets_no_partitions(
    paris: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await paris.apply()
    paris.becomes(cut(2))
    monkeypatch.setattr(apply, "KNOWN_HASH", "another")
    report = await paris.apply()
    assert faults(report) == [
        ("exchange", paris.names.partitions("orders"), ItemOutcome.FAILED),
    ]
    assert "to other partitions" in report.faults[0].detail
    assert {queue for queue, _ in await bound_to(paris, "orders")} == {paris.names.egress("orders")}


async def test_the_probe_leaves_nothing_behind(paris: Site) -> None:
    await paris.apply()
    address = paris.book.administrator("paris")
    assert await probe_hash(address, paris.names.prefix) == KNOWN_HASH
    for kind in ("queues", "exchanges"):
        found = await paris.vhost.api("GET", f"/{kind}/{{vhost}}")
        assert not [one["name"] for one in found if ".probe." in one["name"]]


@pytest.mark.slow
async def test_a_broker_without_the_plugin_gets_partitions_or_is_told_to_enable_it(
    local_broker_factory: LocalBrokerFactory, tmp_path: Path
) -> None:
    broker: LocalBroker = await local_broker_factory("plain", start=False)
    plugins = tuple(one for one in PLUGINS if one != "rabbitmq_sharding")
    broker = LocalBroker(replace(broker.spec, plugins=plugins), broker.installation)
    await broker.start(deadline_s=START_WITHIN_S)
    try:
        vhost = await own_vhost(broker, "paris")
        mesh = mesh_of(cut(2).replace("MESH", vhost.name.replace(".", "-")))
        paris = Site(vhost, mesh, "paris", tmp_path / "state")
        await paris.make_admin()
        report = await paris.apply()
        if broker.installation.release >= (4, 3):  # which has such exchanges by itself
            assert report.ok, report.faults
            assert len(await bound_to(paris, paris.names.partitions("orders"))) == 2
            return
    finally:
        await broker.stop()
    found: Item = report.faults[0]
    assert (found.kind, found.name) == ("exchange", paris.names.partitions("orders"))
    assert "has no exchanges of type x-modulus-hash" in found.detail
    assert "rabbitmq-plugins enable rabbitmq_sharding" in found.mend
