"""`isthmus status FILE`: state of the mesh, once or continuously."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from federation.mesh import Mesh
from federation.wording import counted, few, numbered
from isthmus.display import table_of
from isthmus.group_hearing import group_tables
from isthmus.known.known_meshes import mesh_or_known
from isthmus.options import DEFAULT_STATE, EXIT_FAULT, AsJson, MeshFile, StateFolder
from isthmus.status import HELD, StatusReport, status_of
from relay.node.site_folder import STANDBY

WATCH_EVERY_S = 1.0
_COLOURS = {
    **dict.fromkeys(("running", STANDBY), "green"),
    **dict.fromkeys(("starting", "blocked", "unknown", "lagging", *HELD), "yellow"),
}
_SELDOM = (
    "duplicates",
    "identity_conflicts",
    "redelivered",
    "unrouted",
    "expired",
    "unwanted",
    "batches_refused",
    "batches_not_authentic",
)
"""Counts that share a column, which names those above 0: a column for each would exceed a
terminal's 80.
"""


def status(
    file: MeshFile,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second.")] = False,
) -> None:
    """Show every site and link: what runs, what waits, what lags.

    Dead letters and quarantine are present numbers; other counts are since a node's start. Exit
    status 0 when everything runs, 1 when not.
    """
    mesh = mesh_or_known(file, state, ())
    if watch:
        try:
            asyncio.run(_watch(file, mesh, state, as_json))
        except KeyboardInterrupt:
            return
    report = asyncio.run(status_of(mesh, state))
    if as_json:
        typer.echo(json.dumps(report.content, indent=1))
    else:
        Console().print(tables(report, file))
    if not report.all_running:
        raise typer.Exit(EXIT_FAULT)


async def _watch(file: Path, mesh: Mesh, state: Path, as_json: bool) -> None:
    if as_json:
        while True:
            typer.echo(json.dumps((await status_of(mesh, state)).content))
            await asyncio.sleep(WATCH_EVERY_S)
    with Live(console=Console(), refresh_per_second=2) as live:
        while True:
            live.update(tables(await status_of(mesh, state), file))
            await asyncio.sleep(WATCH_EVERY_S)


def tables(report: StatusReport, file: Path) -> Group:
    """Render two tables and the troubles in words. `file` is the mesh file, for commands."""
    content = report.content
    title = f"mesh {content['mesh']}, revision {content['revision']}"
    sites = table_of(title, "site", "state", ">waiting to leave", ">delivered", "of note")
    for name, site in content["sites"].items():
        figures = [_number(site.get(column)) for column in ("egress_messages", "delivered")]
        notes = [*_put_aside(site).values()]
        notes += [f"{_number(site[one])} {_words(one)}" for one in _SELDOM if site.get(one)]
        if site.get("core") == "pure":
            notes.append("without the native core")
        sites.add_row(name, _state(site["state"]), *figures, ", ".join(notes))
    lag = (">lag: messages", ">bytes", ">seconds", ">clock")
    links = table_of("links", "from", "to", "state", *lag)
    for link in content["links"]:
        links.add_row(
            link["from"],
            link["to"],
            _state(link["state"]),
            _number(link["lag_messages"]),
            _number(link["lag_bytes"]),
            _number(link["lag_seconds"]),
            _clock(link.get("clock_ahead_ms")),
        )
    troubles = map(escape, [*_troubles(content), *_to_do(content["sites"], file)])
    more = [*group_tables(content["sites"]), *_site_nodes(content), *_nodes_in_use(content)]
    return Group(sites, links, *more, *troubles)


def _site_nodes(content: dict[str, Any]) -> list[Table]:
    """Return the table of the nodes of sites with several; none without such sites."""
    table = table_of("nodes", "site", "node", "state", "of note")
    for name, site in content["sites"].items():
        for node, found in site.get("nodes", {}).items():
            table.add_row(name, node, _state(found["state"]), escape(_of_node(found)))
    return [table] if table.row_count else []


def _of_node(node: dict[str, Any]) -> str:
    held = node["held"]
    if not held:
        return str(node["reason"])
    if len(held) == 1 and node["slots"] == [0]:
        notes = [f"epoch {held[0]['epoch']}, {held[0]['rows']} rows of journal"]
    else:
        notes = [numbered("slot", node["slots"])]
    away_s = [one["journal_away_s"] for one in held if one["journal_away_s"] is not None]
    if away_s:
        waiting = _number(sum(one["waiting_bytes"] for one in held))
        notes.append(f"no Cassandra for {max(away_s):.0f} s, {waiting} bytes wait")
    return "; ".join([*notes, *filter(None, [node["reason"]])])


def _nodes_in_use(content: dict[str, Any]) -> list[Table]:
    """Return the table of broker nodes in use; none without clusters."""
    rows = [
        (f"{name}: {stage}", node)
        for name, site in content["sites"].items()
        for stage, node in site.get("connected_to", {}).items()
    ]
    for link in content["links"]:
        for end, key in (("from", "connected_to"), ("to", "receiver_connected_to")):
            if key in link:
                rows.append((f"{link['from']} -> {link['to']}: end at {link[end]}", link[key]))
    if not rows:
        return []
    table = Table("end", "broker node", title="clusters", title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row))
    return [table]


def _to_do(sites: dict[str, Any], file: Path) -> list[str]:
    """Return lines on what needs a look, with commands."""
    lines = []
    for name, site in sites.items():
        lines += [
            f"{name}: {waiting}: `isthmus {command} list {file} --site {name}`"
            for command, waiting in _put_aside(site).items()
        ]
    if any(site.get("unrouted") for site in sites.values()):
        lines.append(
            "unrouted: came to a site where no queue was bound for its key, and so went nowhere, "
            "as in any broker"
        )
    return lines


def _put_aside(site: dict[str, Any]) -> dict[str, str]:
    """Return dead letters and quarantine that wait now, by the command for them."""
    letters, quarantine = (
        site.get(f"{one}_waiting") or 0 for one in ("dead_letters", "quarantine")
    )
    waiting = {}
    if letters and letters > 0:
        waiting["dead-letters"] = counted(letters, "dead letter")
    if quarantine and quarantine > 0:
        waiting["quarantine"] = f"{quarantine:,} in quarantine"
    return waiting


def _troubles(content: dict[str, Any]) -> list[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for name, site in content["sites"].items():
        if site.get("reason"):
            alike.setdefault((site["state"], site["reason"]), []).append(name)
    lines = [f"{few(names)}: {state}: {reason}" for (state, reason), names in alike.items()]
    for name, site in content["sites"].items():
        lines += [
            f"{name}: {flow} stands: {why}" for flow, why in site.get("standing_flows", {}).items()
        ]
        lines += [
            f"{name}: {flow} tries again while later messages go on: {why}"
            for flow, why in site.get("deferring_flows", {}).items()
        ]
        lines += [
            f"{name}: egress of {exchange}: {why}"
            for exchange, why in site.get("waiting_exchanges", {}).items()
        ]
        lines += [
            f"{name} takes nothing from {neighbour}: {why}"
            for neighbour, why in site.get("not_understood", {}).items()
        ]
    lines += [
        f"{link['from']} -> {link['to']}: {link['state']}: {link['reason']}"
        for link in content["links"]
        if link.get("reason")
        and link["state"] != "running"
        # The silence of a node is reported above, not again for each of its links.
        and content["sites"].get(link["from"], {}).get("delivered") is not None
    ]
    return [*lines, *content.get("notes", ())]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _state(word: str) -> str:
    return f"[{_COLOURS.get(word, 'red')}]{word}[/]"


def _clock(ahead_ms: float | None) -> str:
    """Format how far the receiver's clock is ahead of the sender's; empty if unknown."""
    if ahead_ms is None:
        return ""
    return f"{ahead_ms:+.0f} ms" if abs(ahead_ms) < 1000 else f"{ahead_ms / 1000:+,.1f} s"


def _number(value: float | None) -> str:
    if value is None or value < 0:
        return "?"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
