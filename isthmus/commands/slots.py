"""`isthmus nodes` and `isthmus slots`: who runs which part of a site, and orders to move it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from federation.mesh import Mesh, Site
from isthmus.completion import site_names
from isthmus.display import table_of
from isthmus.known.known_meshes import mesh_or_known
from isthmus.node_client import NodeAway, NodeClient, NodeSaysNo
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    MeshFile,
    StateFolder,
    exit_with,
    site_or_exit,
)
from isthmus.status import HELD, status_of

MOVED_WITHIN_S = 60.0
POLL_S = 0.2
_RUNS = ("running", *HELD)
Sites = Annotated[
    list[str] | None,
    typer.Option("--site", help="Of this site; of all, if left out.", autocompletion=site_names),
]


def nodes(
    file: MeshFile, site: Sites = None, state: StateFolder = DEFAULT_STATE, as_json: AsJson = False
) -> None:
    """Show the nodes of sites with several: what each runs, and how far its copies are.

    Nodes on other machines are not seen: run this there too. Exit status 0 when every node of this
    machine answers, 1 when not.

    Example: isthmus nodes mesh.yaml --site paris
    """
    mesh = mesh_or_known(file, state, site or ())
    names, parts = _sites_or_exit(file, mesh, site), _parts(mesh, state)
    found = {name: parts[name].get("nodes", {}) for name in names}
    if as_json:
        typer.echo(json.dumps({"sites": found}, indent=1))
    else:
        table = table_of("nodes", "site", "node", "state", "runs", ">copy behind", "of note")
        for name, several in found.items():
            for node, report in several.items():
                table.add_row(name, node, report["state"], *_of_node(mesh.sites[name], report))
        _print(table, "no site here has several nodes")
    if any(node["pid"] is None for several in found.values() for node in several.values()):
        raise typer.Exit(EXIT_FAULT)


def _of_node(site: Site, report: Mapping[str, Any]) -> tuple[str, str, str]:
    runs = ", ".join(map(str, report["slots"]))
    if site.slots.is_whole and runs:
        runs = "the site"
    followed_s = (report["copy"] or {}).get("followed_s")
    return runs, "" if followed_s is None else f"{followed_s:.1f} s", escape(report["reason"])


def slots(
    file: MeshFile,
    site: Sites = None,
    move: Annotated[
        int | None, typer.Option("--move", metavar="SLOT", help="A slot to move, with --to.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NODE", help="The node that is to have it.")
    ] = None,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Show the slots of sites, with the node that runs each; or move a slot to another node.

    A moved slot stays where an operator put it for as long as that node lives; other slots follow
    the number of nodes. Run a move on the machine of the node that runs the slot. It returns once
    the slot runs there.

    Exit status 0 when every slot runs, or the move was made; 1 when not.

    Example: isthmus slots mesh.yaml --site paris --move 3 --to paris-b
    """
    mesh = mesh_or_known(file, state, site or ())
    names = _sites_or_exit(file, mesh, site)
    if (move is None) != (to is None):
        exit_with("say both: --move SLOT --to NODE", EXIT_USAGE)
    if move is not None and to is not None:
        if site is None or len(site) != 1:
            exit_with("say which site: --site SITE", EXIT_USAGE)
        _move(mesh, state, site[0], move, to)
        if as_json:
            typer.echo(json.dumps({"site": site[0], "slot": move, "node": to}))
        else:
            typer.echo(f"{site[0]}: {to} runs slot {move}")
        return
    parts = _parts(mesh, state)
    found = {name: _slots_of(mesh, name, parts[name]) for name in names}
    if as_json:
        typer.echo(json.dumps({"sites": found}, indent=1))
    else:
        table = table_of(
            *("slots", "site", ">slot", "exchanges", "node", "state"),
            ">handled/s",
            ">epoch",
            ">journal",
            ">ms a row",
            "of note",
        )
        for name, several in found.items():
            for slot in several:
                shared = slot["shared"] or {}
                table.add_row(
                    name,
                    str(slot["slot"]),
                    escape(", ".join(slot["exchanges"])),
                    slot["node"] or "",
                    slot["state"],
                    _count_or_none(shared.get("messages_s")),
                    str(shared.get("epoch", "")),
                    str(shared.get("rows", "")),
                    _milliseconds(shared.get("row_s")),
                    escape(slot["reason"]),
                )
        _print(table, "no site here has several slots or nodes")
    if any(slot["state"] not in _RUNS for several in found.values() for slot in several):
        raise typer.Exit(EXIT_FAULT)


def _count_or_none(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _milliseconds(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s * 1000:.1f}"


def _sites_or_exit(file: Path, mesh: Mesh, sites: list[str] | None) -> list[str]:
    """Return the named sites; without any all that have several slots or nodes."""
    if sites:
        site_or_exit(file, mesh, *sites)
        return sites
    several = [one for one in mesh.sites.values() if one.nodes or not one.slots.is_whole]
    return [one.name for one in several]


def _parts(mesh: Mesh, state: Path) -> dict[str, dict[str, Any]]:
    """Return the parts of the status report by site."""
    parts: dict[str, dict[str, Any]] = asyncio.run(status_of(mesh, state)).content["sites"]
    return parts


def _slots_of(mesh: Mesh, site: str, part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is known of each slot of a site, the first slot's first, by the site's part of
    the status report.
    """
    slots, nodes = mesh.sites[site].slots, part.get("nodes", {})
    runs = {slot: name for name, node in nodes.items() for slot in node["slots"]}
    return [
        {
            "slot": number,
            "exchanges": [
                partition
                for name, exchange in mesh.exchanges.items()
                for n, partition in enumerate(exchange.partition_names)
                if slots.of(name, n) == number
            ],
            "node": runs.get(number),
            "state": report["state"],
            "reason": report["reason"],
            "shared": report.get("slot"),
        }
        for number, report in enumerate(part.get("slots", [part] * slots.count))
    ]


def _move(mesh: Mesh, state: Path, site: str, slot: int, to: str) -> None:
    """Move a slot, and wait until it runs; end the command if that fails."""
    if not 0 <= slot < mesh.sites[site].slots.count:
        exit_with(f"{site} has slots 0 to {mesh.sites[site].slots.count - 1}", EXIT_USAGE)
    try:
        client = NodeClient.of(state, site)
        asyncio.run(client.order(slot, f"slots/{slot}/give", {"to": to}))
    except (NodeAway, NodeSaysNo) as error:
        exit_with(str(error), EXIT_FAULT)
    limit = time.monotonic() + MOVED_WITHIN_S
    while time.monotonic() < limit:
        found = _slots_of(mesh, site, _parts(mesh, state)[site])[slot]
        if found["node"] == to and found["state"] in _RUNS:
            return
        time.sleep(POLL_S)
    exit_with(
        f"{site}: slot {slot} does not run at {to} within {MOVED_WITHIN_S:g} s: if that node is on"
        " another machine, run `isthmus slots` there",
        EXIT_FAULT,
    )


def _print(table: Table, if_none: str) -> None:
    if table.row_count:
        Console().print(table)
    else:
        typer.echo(if_none)
