"""Apply on a real broker: sites are virtual hosts of one, which is all a site is."""

from __future__ import annotations

import aio_pika

from federation.brokers.apply_report import Item, ItemOutcome, SiteReport
from federation.brokers.provision import LOG_SEGMENT_BYTES, NEVER_DROP
from tests.conftest import Eventually
from tests.federation.live_site import FILE, ORDERS, Site, outcomes, publish, take


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
    assert {item.outcome for item in again.items} == {ItemOutcome.THERE}


async def test_queues_are_made_so_that_no_version_of_the_broker_drops_what_comes_back(
    paris: Site,
) -> None:
    await paris.apply()
    names = paris.names
    for name in (names.egress("orders"), names.dead_letters, names.quarantine):
        arguments = (await paris.queue(name))["arguments"]
        assert arguments == {"x-queue-type": "quorum", "x-delivery-limit": NEVER_DROP}


async def test_queues_that_have_other_members_than_the_file_says_are_taken_as_they_are(
    paris: Site,
) -> None:
    await paris.apply()
    for replicas in (1, 3):
        paris.becomes(FILE.replace("paris: {}", f"paris: {{replicas: {replicas}, brokers: 3}}"))
        report = await paris.apply()
        assert report.faults == ()
        assert not any("lease" not in item.name for item in report.changes if item.kind == "queue")
    assert (await paris.apply()).changes == ()
    log = await paris.queue(paris.names.log)
    assert "x-initial-cluster-size" not in log["arguments"]


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
    assert [(f.kind, f.outcome) for f in report.faults] == [("policy", ItemOutcome.DIFFERS)]
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
    assert {fault.outcome for fault in faults.values()} == {ItemOutcome.DIFFERS}
    assert "x-queue-type" in faults[egress].detail
    assert "delete the queue" in faults[egress].mend
    assert "'topic'" in faults["news"].detail
    # The rest went on.
    assert outcomes(report, "queue")[paris.names.log] is ItemOutcome.CREATED
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
    # No node ever ran with it, so that the deliverer has nothing of it left to write.
    assert [(item.kind, item.outcome) for item in report.changes] == [
        ("rights", ItemOutcome.CHANGED),
        ("binding", ItemOutcome.UNBOUND),
        ("binding", ItemOutcome.UNBOUND),
    ]
    assert await paris.keys_bound(egress) == set()
    # What waits in it is told for as long as it does.
    for again in (report, await paris.apply()):
        [left] = [item for item in again.items if item.outcome is ItemOutcome.LEFT]
        assert left.name == egress
        assert left.detail.startswith("1 message in it")
    await take(paris.book.packer("paris"), egress)
    last = await paris.apply()
    assert {item.outcome for item in last.items} == {ItemOutcome.THERE}


async def test_an_exchange_put_back_into_the_file_is_bound_again(paris: Site) -> None:
    await paris.apply()
    paris.becomes(FILE.replace(ORDERS, ""))
    await paris.apply()
    paris.becomes(FILE)
    report = await paris.apply()
    assert report.ok, report.faults
    assert [(item.kind, item.outcome) for item in report.changes] == [
        ("rights", ItemOutcome.CHANGED),
        ("binding", ItemOutcome.CREATED),
        ("binding", ItemOutcome.CREATED),
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
        ("binding", ItemOutcome.DIFFERS)
    ]
    assert ("amq.topic", "x") in await paris.keys_bound(egress)


async def test_a_neighbour_that_no_link_brings_any_more_is_told(paris: Site) -> None:
    await paris.apply()
    paris.becomes(FILE.replace("both: true", "both: false"))
    report = await paris.apply()
    assert report.ok, report.faults
    [left] = [item for item in report.items if item.outcome is ItemOutcome.LEFT]
    assert left.name == paris.names.link_user("tokyo")
    assert left.mend.startswith("rabbitmqctl clear_permissions")


async def test_a_user_whose_password_was_changed_gets_the_right_one_again(paris: Site) -> None:
    await paris.apply()
    user = paris.names.link_user("tokyo")
    await paris.vhost.api("PUT", f"/users/{user}", {"password": "other", "tags": ""})
    report = await paris.apply()
    assert [(item.kind, item.name) for item in report.changes] == [("user", user)]
    assert (await paris.apply()).changes == ()


async def test_all_of_a_headers_exchange_leaves(paris: Site) -> None:
    await paris.apply()
    connection = await aio_pika.connect(paris.book.application("paris").uri)
    async with connection:
        channel = await connection.channel()
        target = await channel.get_exchange("tagged", ensure=False)
        await target.publish(aio_pika.Message(b"bare"), "")
        await target.publish(aio_pika.Message(b"tagged", headers={"colour": "red"}), "k")
    node, egress = paris.book.packer("paris"), paris.names.egress("tagged")
    assert [await take(node, egress) for _ in range(2)] == [b"bare", b"tagged"]


def test_a_report_counts_what_differs_as_a_fault_and_what_nobody_checked_as_none() -> None:
    report = SiteReport(
        "paris",
        (
            Item("queue", "a", ItemOutcome.CREATED),
            Item("queue", "b", ItemOutcome.DIFFERS),
            Item("policy", "c", ItemOutcome.UNCHECKED),
        ),
    )
    assert [item.name for item in report.changes] == ["a"]
    assert [item.name for item in report.faults] == ["b"]
    assert [item.name for item in report.unchecked] == ["c"]
    assert not report.ok
