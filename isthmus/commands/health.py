"""`isthmus health`: ask whether the nodes of a state folder live."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import typer

from isthmus.node_client import NodePlace
from isthmus.options import DEFAULT_STATE, EXIT_FAULT, AsJson, StateFolder
from relay.node.site_folder import node_folders

_WITHIN_S = 5.0


def health(state: StateFolder = DEFAULT_STATE, as_json: AsJson = False) -> None:
    """Check that each node of this state folder answers, for a container's probe.

    A node answers while it turns, whatever its brokers and neighbours do: their state is in
    `isthmus status`, and no restart of a node mends them. Exit status 0 if all nodes answer, 1 if
    one does not, or there is none yet.

    Example: isthmus health --state /var/lib/isthmus
    """
    sites = sorted(path for path in (state / "sites").glob("*") if path.is_dir())
    found = {
        site.name if folder == site else f"{site.name}/{folder.name}": _problem(folder)
        for site in sites
        for folder in node_folders(site)
    }
    if as_json:
        typer.echo(json.dumps({name: {"problem": problem} for name, problem in found.items()}))
    elif not found:
        typer.echo(f"no node has started in {state} yet", err=True)
    else:
        for name, problem in found.items():
            typer.echo(f"{name}: {problem or 'answers'}", err=problem is not None)
    if not found or any(found.values()):
        raise typer.Exit(EXIT_FAULT)


def _problem(folder: Path) -> str | None:
    """Return why the node of a folder does not answer; None if the node does."""
    try:
        place = NodePlace.of(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return "its node is not started, or this is another user than the node's"
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=_WITHIN_S)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"its node does not answer: {error}"
    finally:
        connection.close()
    return None if status == http.HTTPStatus.OK else f"its node answers with status {status}"
