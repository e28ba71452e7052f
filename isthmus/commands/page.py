"""`isthmus page FILE`: the mesh in a browser."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from isthmus.known.known_meshes import mesh_or_known
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    MeshFile,
    StateFolder,
    exit_with,
)


def page(
    file: MeshFile,
    state: StateFolder = DEFAULT_STATE,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where to serve the page.", show_default="127.0.0.1:8642"
        ),
    ] = None,
    certificate: Annotated[
        str, typer.Option(metavar="PATH", help="For TLS: the page's certificate, PEM.")
    ] = "",
    key: Annotated[str, typer.Option(metavar="PATH", help="For TLS: its private key.")] = "",
    token: Annotated[
        str,
        typer.Option(
            metavar="env:NAME|file:PATH",
            help="The token for orders, and for everything from elsewhere. Default: page.token in "
            "the state folder, made if missing.",
        ),
    ] = "",
    trust_header: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The header in which a proxy, which shows the token, names its user.",
        ),
    ] = "",
    prometheus: Annotated[
        str,
        typer.Option(metavar="URL", help="Take the lines of the last hour from this Prometheus."),
    ] = "",
) -> None:
    """Serve a page with the whole mesh, live: the graph, links and sites with their figures, the
    search for a message, audits, and what an outage would do.

    Orders (pause, resume, drain, accept a gap, retry, drop, repair) need the page's token, and are
    logged in STATE/page-orders.jsonl. They reach the sites whose nodes run with this state folder;
    the page shows all others too, as `isthmus status` does. Ctrl-C ends the page.

    Example: isthmus page mesh.yaml
    """
    from isthmus.page.gatherer import MeshOfFile
    from isthmus.page.server import PageOptions, PageServer, PageUnavailable

    mesh = mesh_or_known(file, state)
    host, port = _address(listen)
    options = PageOptions(host, port, certificate, key, token, trust_header, prometheus)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")

    def announce(url: str) -> None:
        typer.echo(f"mesh {mesh.name} is at {url}, Ctrl-C ends it", err=True)

    try:
        asyncio.run(PageServer(MeshOfFile(file, state, mesh), options).run(announce))
    except PageUnavailable as error:
        exit_with(str(error), EXIT_FAULT)


def _address(listen: str | None) -> tuple[str, int | None]:
    if listen is None:
        return "127.0.0.1", None
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        exit_with(f"--listen {listen!r}: say HOST:PORT, such as 127.0.0.1:8642", EXIT_USAGE)
    return host.removeprefix("[").removesuffix("]"), int(port)
