"""`isthmus uri`, `publish` and `consume`: what an application at a site does, by hand."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Sequence
from typing import Annotated

import aio_pika
import typer
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import AMQPError, DeliveryError

from federation.brokers.addresses import AddressError, AmqpAddress
from federation.brokers.amqp_client import amqp_client
from federation.mesh_file import PasswordMissing
from isthmus.departures import delivered_to, why_it_stays, why_nothing_comes
from isthmus.known.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    AsJson,
    MeshFile,
    SiteName,
    StateFolder,
    exit_with,
    mesh_or_exit,
    site_or_exit,
)


def uri(file: MeshFile, site: SiteName, state: StateFolder = DEFAULT_STATE) -> None:
    """Print the AMQP address, with credentials, that an application at SITE uses.

    Example: amqp-publish --url="$(isthmus uri mesh.yaml paris)" -e orders -r order.new -b hello
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    book = address_book_or_exit(mesh, state)
    try:
        typer.echo(book.application(site).uri)
    except (AddressError, PasswordMissing) as error:
        exit_with(str(error), EXIT_FAULT)


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
    """Publish at SITE as an application would: persistent, confirmed, each message with a UUID.

    Warns if, by the mesh file, the message cannot leave the site. Exit status 1 if the broker does
    not confirm.

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
        exit_with(
            f"the broker of {site} refused it (nack): some queue bound to {exchange} could not "
            "take it, because it is full, say. Other queues, and the mesh, may have it all the "
            "same: published once more, it may be there twice",
            EXIT_FAULT,
        )
    except (AMQPError, ConnectionError, OSError, AddressError) as error:
        why = str(error) or type(error).__name__
        hint = f"; see `isthmus status {file}`" if isinstance(error, OSError) else ""
        exit_with(f"not confirmed by the broker of {site}: {why}{hint}", EXIT_FAULT)
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


CONNECT_WITHIN_S = 10.0


def consume(
    file: MeshFile,
    site: SiteName,
    exchange: Annotated[str, typer.Argument(metavar="EXCHANGE", help="What to listen to.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            "-k",
            help="Binding key; may be repeated. All, unless told: of a direct exchange the keys "
            "that the mesh file names.",
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Stop after so many.")] = 0,
    as_json: AsJson = False,
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Listen at SITE with a queue of one's own, until Ctrl-C or --count messages.

    Example: isthmus consume mesh.yaml tokyo orders --key 'order.#'
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    book = address_book_or_exit(mesh, state)
    if why := why_nothing_comes(mesh, site, exchange):
        typer.echo(f"warning: {why}", err=True)
    declared = delivered_to(mesh, exchange)
    name = declared.delivers_to if declared else exchange
    # A direct exchange takes # for a key like any other.
    every = declared.keys if declared is not None and declared.type == "direct" else ("#",)
    try:
        asyncio.run(_consume(book.application(site), name, key or every, count, as_json))
    except KeyboardInterrupt:
        return
    except (ConnectionError, OSError) as error:
        why = str(error) or "no answer in time"
        exit_with(
            f"the broker of {site} cannot be reached: {why}; see `isthmus status {file}`",
            EXIT_FAULT,
        )
    except (AMQPError, AddressError) as error:
        exit_with(f"cannot consume: {str(error) or type(error).__name__}", EXIT_FAULT)


async def _consume(
    address: AmqpAddress, exchange: str, keys: Sequence[str], count: int, as_json: bool
) -> None:
    connection = await amqp_client(address, "isthmus consume", CONNECT_WITHIN_S)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        queue = await channel.declare_queue(exclusive=True)
        for key in keys:
            await queue.bind(exchange, key)
        typer.echo(f"listening to {exchange} for {', '.join(keys)}", err=True)
        seen = 0
        async with queue.iterator() as messages:
            async for message in messages:
                typer.echo(_line(message, as_json))
                sys.stdout.flush()
                await message.ack()
                seen += 1
                if seen == count:
                    return


def _line(message: AbstractIncomingMessage, as_json: bool) -> str:
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
