"""`isthmus publish FILE SITE EXCHANGE KEY [BODY]`: a message by hand."""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Annotated

import aio_pika
import typer
from aio_pika.exceptions import AMQPError, DeliveryError

from federation.brokers.addresses import AddressError, AmqpAddress
from federation.brokers.amqp_client import amqp_client
from isthmus.departures import why_it_stays
from isthmus.known.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    MeshFile,
    SiteName,
    StateFolder,
    mesh_or_exit,
    site_or_exit,
)

CONNECT_WITHIN_S = 10.0


def publish(
    file: MeshFile,
    site: SiteName,
    exchange: Annotated[str, typer.Argument(metavar="EXCHANGE", help="Where to publish.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Routing key.")],
    body: Annotated[
        str, typer.Argument(metavar="[BODY]", help="The text; - for standard input.")
    ] = "-",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="So many times.")] = 1,
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Publish at SITE as an application would: persistent, confirmed, each with a UUID.

    If nothing of it can leave the site, by the mesh file, that is said. Exit status 1 if the broker
    does not confirm it.

    Example: isthmus publish mesh.yaml paris orders order.new '{"id": 1}'
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    book = address_book_or_exit(mesh, state)
    if why := why_it_stays(mesh, site, exchange, key):
        typer.echo(f"warning: {why}", err=True)
    content = sys.stdin.buffer.read() if body == "-" else body.encode()
    try:
        asyncio.run(_publish(book.application(site), exchange, key, content, count))
    except DeliveryError:
        typer.echo(
            f"the broker of {site} refused it (nack): some queue bound to {exchange} could not "
            "take it, because it is full, say. Other queues, and the mesh, may have it all the "
            "same: published once more, it may be there twice",
            err=True,
        )
        raise typer.Exit(EXIT_FAULT) from None
    except (AMQPError, ConnectionError, OSError, AddressError) as error:
        why = str(error) or type(error).__name__
        hint = f"; see `isthmus status {file}`" if isinstance(error, OSError) else ""
        typer.echo(f"not confirmed by the broker of {site}: {why}{hint}", err=True)
        raise typer.Exit(EXIT_FAULT) from None
    typer.echo(f"{count} confirmed by the broker of {site}")


async def _publish(address: AmqpAddress, exchange: str, key: str, body: bytes, count: int) -> None:
    connection = await amqp_client(address, "isthmus publish", CONNECT_WITHIN_S)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        target = await channel.get_exchange(exchange, ensure=True)
        for _ in range(count):
            message = aio_pika.Message(
                body,
                message_id=str(uuid.uuid4()),
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await target.publish(message, key, mandatory=False)
