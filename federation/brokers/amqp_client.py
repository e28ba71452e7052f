"""A connection by aio-pika, for rare work: declaring, and the messages of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aio_pika
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import AMQPException
from aiormq.exceptions import (
    AMQPConnectionError,
    AuthenticationError,
    ConnectionClosed,
    ProbableAuthenticationError,
)

from federation.brokers.addresses import AmqpAddress
from federation.brokers.endpoint import Endpoint
from federation.brokers.first_answer import NoneAnswered, first_answer
from federation.brokers.tls_refusals import TlsRefused, tls_refusal

_REFUSALS = (AuthenticationError, ProbableAuthenticationError, ConnectionClosed)


async def amqp_client(address: AmqpAddress, name: str, within_s: float) -> AbstractConnection:
    """Connect to a node of the cluster that answers, each within `within_s`. The broker shows
    `name`. Raises AMQPException, OSError (TlsRefused is one), TimeoutError, TlsUnusable.
    """
    late: list[AbstractConnection] = []
    try:
        _, connection = await first_answer(
            address.endpoints,
            lambda endpoint: _connected(address, endpoint, name, within_s),
            late.append,
            (AMQPException, OSError),
        )
    except NoneAnswered as none:
        raise _combined(none.errors) from none
    finally:
        for unused in late:
            await unused.close()
    return connection


def _combined(errors: Mapping[Endpoint, Exception]) -> Exception:
    if len(errors) == 1:
        return next(iter(errors.values()))
    refusals = [error for error in errors.values() if isinstance(error, _REFUSALS)]
    if refusals:
        return refusals[0]
    return ConnectionError(
        "; ".join(
            f"{endpoint}: {str(error) or 'no answer in time'}" for endpoint, error in errors.items()
        )
    )


async def _connected(
    address: AmqpAddress, endpoint: Endpoint, name: str, within_s: float
) -> AbstractConnection:
    context = address.ssl_context
    try:
        async with asyncio.timeout(within_s):
            return await aio_pika.connect(
                host=endpoint.host,
                port=endpoint.port,
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
            raise TlsRefused(f"{address.at(endpoint).public_uri}: {why}") from error
        raise
