"""A command's connection to a cluster."""

from __future__ import annotations

import pytest
from aiormq.exceptions import AMQPConnectionError

from federation.brokers.addresses import AmqpAddress
from federation.brokers.amqp_client import amqp_client
from federation.brokers.endpoint import Endpoint
from tests.live_brokers import Vhost

DEAD, DEAD_TOO = Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2)


def address(vhost: Vhost, *places: Endpoint, password: str | None = None) -> AmqpAddress:
    first, *others = places
    login = vhost.name, vhost.user, vhost.password if password is None else password
    return AmqpAddress(first.host, first.port, *login, others=tuple(others))


def alive(vhost: Vhost) -> Endpoint:
    return Endpoint(vhost.host, vhost.amqp_port)


async def test_a_dead_first_address_is_passed_over(vhost: Vhost) -> None:
    connection = await amqp_client(address(vhost, DEAD, alive(vhost)), "a test", 10)
    assert connection.url.port == vhost.amqp_port
    await connection.close()


async def test_a_refused_login_is_told_rather_than_a_dead_address(vhost: Vhost) -> None:
    with pytest.raises(AMQPConnectionError, match="ACCESS_REFUSED"):
        await amqp_client(address(vhost, DEAD, alive(vhost), password="wrong"), "a test", 10)


async def test_when_no_node_answers_each_one_is_told(vhost: Vhost) -> None:
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "):
        await amqp_client(address(vhost, DEAD, DEAD_TOO), "a test", 10)
