"""`isthmus consume FILE SITE EXCHANGE`: what arrives there, shown as it comes."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import aio_pika
import typer
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import AMQPError

from federation.brokers.addresses import AddressError, AmqpAddress
from isthmus.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    AsJson,
    MeshFile,
    SiteName,
    StateFolder,
    mesh_or_exit,
    site_or_exit,
)


def consume(
    file: MeshFile,
    site: SiteName,
    exchange: Annotated[str, typer.Argument(metavar="EXCHANGE", help="What to listen to.")],
    key: Annotated[str, typer.Option("--key", "-k", help="Binding key.")] = "#",
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Stop after so many.")] = 0,
    as_json: AsJson = False,
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Listen at SITE with a queue of one's own, until Ctrl-C or --count messages.

    Example: isthmus consume mesh.yaml tokyo orders --key 'order.#'
    """
    mesh = mesh_or_exit(file)
    site_or_exit(file, mesh, site)
    book = address_book_or_exit(mesh, state)
    declared = mesh.exchanges.get(exchange)
    name = declared.delivers_to if declared else exchange
    try:
        asyncio.run(_consume(book.application(site), name, key, count, as_json))
    except KeyboardInterrupt:
        return
    except (AMQPError, ConnectionError, OSError, AddressError) as error:
        typer.echo(f"cannot consume: {str(error) or type(error).__name__}", err=True)
        raise typer.Exit(EXIT_FAULT) from None


async def _consume(
    address: AmqpAddress, exchange: str, key: str, count: int, as_json: bool
) -> None:
    connection = await aio_pika.connect(address.uri, ssl_context=address.ssl_context, timeout=10)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, key)
        typer.echo(f"listening to {exchange} for {key}", err=True)
        seen = 0
        async with queue.iterator() as messages:
            async for message in messages:
                typer.echo(_shown(message, as_json))
                sys.stdout.flush()
                await message.ack()
                seen += 1
                if seen == count:
                    return


def _shown(message: AbstractIncomingMessage, as_json: bool) -> str:
    text = message.body.decode(errors="replace")
    path = str(message.headers.get("x-mesh-path", "here"))
    if not as_json:
        return f"[{path}] {message.routing_key}: {text}"
    return json.dumps(
        {
            "routing_key": message.routing_key,
            "message_id": message.message_id,
            "path": path.split(","),
            "redelivered": bool(message.headers.get("x-mesh-redelivered", False)),
            "headers": {name: str(value) for name, value in message.headers.items()},
            "body": text,
        }
    )
