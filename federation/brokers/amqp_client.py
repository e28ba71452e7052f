"""A connection by aio-pika, for what is asked of a broker once: declaring, a command's messages."""

from __future__ import annotations

import asyncio

import aio_pika
from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPConnectionError

from federation.brokers.addresses import AmqpAddress
from federation.brokers.tls_refusals import TlsRefused, tls_refusal


async def amqp_client(address: AmqpAddress, name: str, within_s: float) -> AbstractConnection:
    """`name` is shown by the broker. Raises AMQPException, OSError (TlsRefused is one),
    TimeoutError, TlsUnusable.
    """
    context = address.ssl_context
    try:
        async with asyncio.timeout(within_s):
            return await aio_pika.connect(
                host=address.host,
                port=address.port,
                login=address.user,
                password=address.password,
                virtualhost=address.vhost,
                ssl=address.tls,
                ssl_context=context,
                auth="external" if address.is_external else "plain",
                client_properties={"connection_name": name},
            )
    except AMQPConnectionError as error:
        if why := tls_refusal(error, context):
            raise TlsRefused(f"{address.public_uri}: {why}") from error
        raise
