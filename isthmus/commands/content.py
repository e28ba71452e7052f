"""`isthmus content get`: the body of a large message that was delivered without."""

from __future__ import annotations

import asyncio
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from federation.brokers.addresses import AddressBook, AddressError
from federation.mesh_file import PasswordMissing
from isthmus.completion import site_names
from isthmus.known.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    MeshFile,
    StateFolder,
    exit_with,
    exit_without_cluster_parts,
    mesh_or_exit,
    site_or_exit,
)

WITHIN_S = 60.0
_ID_BYTES = 32

content = typer.Typer(
    no_args_is_help=True, help="Fetch the bodies of large messages that came without."
)


@content.command()
def get(
    file: MeshFile,
    content_id: Annotated[
        str, typer.Argument(metavar="ID", help="The message's header x-mesh-content-id.")
    ],
    site: Annotated[
        str,
        typer.Option(
            "--site", help="The site at which it was delivered.", autocompletion=site_names
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the body.", dir_okay=False)
    ] = None,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Fetch the body of a large message that an exchange with `large: reference` brought.

    The body is compared with its ID, which is its digest. It goes to standard output, or into a
    file; --json tells its size and digest instead. Exit status 1 if it is not there any more.

    Example: isthmus content get mesh.yaml 3f1c... --site paris -o body.bin
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    if mesh.sites[site].nodes is None:
        exit_with(f"{site} has no `cluster:` in {file}, and so no content store", EXIT_USAGE)
    try:
        wanted = bytes.fromhex(content_id)
    except ValueError:
        wanted = b""
    if len(wanted) != _ID_BYTES:
        exit_with(
            f"`{content_id}` is no content ID: write the {2 * _ID_BYTES} digits of the message's"
            " header x-mesh-content-id",
            EXIT_USAGE,
        )
    body = _fetch(address_book_or_exit(mesh, state), site, wanted)
    if output is not None:
        try:
            output.write_bytes(body)
        except OSError as error:
            exit_with(f"{output}: {error.strerror}", EXIT_FAULT)
    if as_json:
        digest = sha256(body).hexdigest()
        report = {"id": content_id, "bytes": len(body), "sha256": digest}
        typer.echo(json.dumps(report | {"output": None if output is None else str(output)}))
    elif output is None:
        sys.stdout.buffer.write(body)


def _fetch(book: AddressBook, site: str, content_id: bytes) -> bytes:
    """Return the content; end the command if that fails."""
    try:
        from relay.cluster.site_servers import SharedServers, cluster_of
    except ImportError as error:
        exit_without_cluster_parts(site, error)
    from relay.content.content_store import ContentAway
    from relay.content.contents import MARGIN_S, ContentGone, fetch

    async def run() -> bytes:
        servers = SharedServers(cluster_of(book, site))
        try:
            async with asyncio.timeout(WITHIN_S):
                store = servers.content(lambda: book.mesh.retention_s + MARGIN_S)
                return await fetch(store, content_id)
        finally:
            await servers.close()

    try:
        return asyncio.run(run())
    except ContentGone as error:
        exit_with(f"not fetched: {error}", EXIT_FAULT)
    except (ContentAway, AddressError, PasswordMissing, TimeoutError) as error:
        exit_with(f"not fetched: {str(error) or 'no answer from Cassandra'}", EXIT_FAULT)
