"""What apply would do, asked of a real broker."""

from __future__ import annotations

import aio_pika

from federation.brokers.apply import preview_site
from tests.federation.live_site import FILE, ORDERS, Site


async def test_before_apply_all_is_missing_and_after_it_nothing(paris: Site) -> None:
    names = paris.names
    before = await preview_site(paris.book, "paris")
    assert {line[0] for line in before} == {"+"}
    assert {
        "+ exchange orders",
        f"+ queue {names.log}",
        f"+ binding orders --order.#--> {names.egress('orders')}",
        f"+ policy {names.log_policy}",
        f"+ user {names.application_user('paris')}",
        f"+ rights {names.application_user('paris')}",
    } <= set(before)
    # It looked, and left all as it was.
    assert await preview_site(paris.book, "paris") == before
    assert (await paris.apply()).ok
    assert await preview_site(paris.book, "paris") == []


async def test_what_a_changed_file_would_change_is_told(paris: Site) -> None:
    await paris.apply()
    egress = paris.names.egress("orders")
    paris.becomes(FILE.replace(ORDERS, "").replace("outage_window: 1h", "outage_window: 2h"))
    said = await preview_site(paris.book, "paris")
    assert said == [
        f"~ rights {paris.names.relay_user('paris')}",
        f"- binding orders --cancel--> {egress}",
        f"- binding orders --order.#--> {egress}",
        f"~ policy {paris.names.log_policy}: definition {{'max-age': '4500s'}} -> "
        "{'max-age': '8100s'}",
    ]


async def test_what_is_there_otherwise_is_told_as_what_apply_cannot_change(paris: Site) -> None:
    egress = paris.names.egress("orders")
    connection = await aio_pika.connect(paris.vhost.amqp_uri)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue(egress, durable=True)
        await channel.declare_exchange("news", "topic", durable=True)
    said = await preview_site(paris.book, "paris")
    assert "! exchange news: is topic, not fanout" in said
    assert f"! queue {egress}: x-queue-type is classic, not quorum" in said
