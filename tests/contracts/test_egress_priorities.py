"""Publishers' priorities in an egress queue of either kind, by release of RabbitMQ."""

from __future__ import annotations

from federation.brokers.credentials import make_credentials
from federation.brokers.provision import QueueDeclaration, declarations
from federation.names import Names
from isthmus.brokers.installation import RabbitMQInstallation
from relay.bulk_amqp import Publisher, connect
from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, PRIORITY, rewrite
from relay.packing.rabbit_egress import connect_egress
from tests.conftest import Eventually
from tests.contracts.test_egress import LOCK, Taker
from tests.federation.meshes import TRIANGLE, mesh_of
from tests.live_brokers import Vhost

NUMBERS = range(600)


def priority(number: int) -> int:
    return number % 10


def egress_queue(rule: str) -> QueueDeclaration:
    """Declare egress as `apply` does for this rule."""
    mesh = mesh_of(TRIANGLE.replace("name: orders,", f"name: orders, priorities: {rule},"))
    name = Names(mesh.name).egress("orders")
    queues = declarations(mesh, "paris", make_credentials(mesh)).queues
    return next(queue for queue in queues if queue.name == name)


async def handed_out(vhost: Vhost, rule: str, eventually: Eventually) -> list[int]:
    """Numbers in the order in which the queue hands them out, the same order twice."""
    queue = egress_queue(rule)
    connection = await connect(vhost.amqp_uri, name="contract test")
    channel = await connection.channel()
    await channel.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments))
    publisher = Publisher(channel)
    await publisher.start()
    messages = [
        (
            "",
            queue.name.encode(),
            rewrite(NONE_PRESENT, {DELIVERY_MODE: 2, PRIORITY: priority(number)}),
            b"%d" % number,
        )
        for number in NUMBERS
    ]
    outcome = await publisher.wait(publisher.publish_many(messages, mandatory=True))
    assert outcome.all_routed
    await connection.close()
    orders = []
    for again in (False, True):
        egress = await connect_egress(vhost.amqp_uri, LOCK, name="contract test")
        taker = await Taker().take(egress, queue.name)
        await eventually(lambda t=taker: len(t.messages) == len(NUMBERS), "all of them")  # type: ignore[misc]
        assert {message[1] for message in taker.messages} == {again}
        orders.append([int(body) for body in taker.bodies])
        await egress.close()
    assert orders[0] == orders[1], "what comes again comes in the order in which it came first"
    return orders[0]


async def test_an_egress_queue_that_keeps_the_order_knows_no_priorities(
    vhost: Vhost, eventually: Eventually
) -> None:
    assert await handed_out(vhost, "order", eventually) == list(NUMBERS)


async def test_another_egress_queue_has_the_order_of_the_release(
    vhost: Vhost, eventually: Eventually, rabbitmq: RabbitMQInstallation
) -> None:
    order = await handed_out(vhost, "keep", eventually)
    if rabbitmq.release < (4, 0):
        assert order == list(NUMBERS)
    elif rabbitmq.release < (4, 3):
        urgent = [number for number in order if priority(number) > 4]
        others = [number for number in order if priority(number) <= 4]
        assert urgent == sorted(urgent)
        assert others == sorted(others)
        assert order.index(urgent[-1]) < order.index(others[-1]), "two of one to one of the other"
    else:
        assert order == sorted(NUMBERS, key=lambda number: -priority(number))
