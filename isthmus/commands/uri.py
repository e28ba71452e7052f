"""`isthmus uri FILE SITE`: where an application at that site connects."""

from __future__ import annotations

import typer

from federation.brokers.addresses import AddressError
from federation.mesh_file import PasswordMissing
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
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAULT) from None
