"""`isthmus dead-letters` and `isthmus quarantine`: list, show, retry, drop, export.

Both groups differ only in words. The site's node, which has the barrier and the ledger, does the
work.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from federation.wording import counted
from isthmus.completion import site_names
from isthmus.known.known_meshes import mesh_or_known
from isthmus.node_client import NodeAway, NodeClient, NodeSaysNo, look_into
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
from relay.delivery.put_aside import Aside

SHOWN_BYTES = 4096
_HELP = {
    "list": """What waits, and why.

Example: {name} list mesh.yaml --site tokyo""",
    "show": """One message, whole: where it came from, why it is here, what it says.

Example: {name} show mesh.yaml 1f0c2a9b3d --site tokyo""",
    "retry": """Send messages again, past the barrier, flagged `x-mesh-redelivered`.

What has been delivered meanwhile by another way is not sent, only put away. What is refused
once more stays where it is. Exit status 1 if any stayed.

Example: {name} retry mesh.yaml --site tokyo --all""",
    "drop": """Give messages up for good. The ledger keeps that it was done.

Example: {name} drop mesh.yaml 1f0c2a9b3d --site tokyo""",
    "export": """Write messages to a file, a JSON object a line, bodies in base64. They stay.

Example: {name} export mesh.yaml --site tokyo --to letters.jsonl""",
}

_EXAMPLES = (
    "list mesh.yaml",
    "show mesh.yaml 1f0c2a9b3d --site tokyo",
    "retry mesh.yaml --site tokyo --all",
    "export mesh.yaml --site tokyo --to letters.jsonl",
)

OneSite = Annotated[
    str, typer.Option("--site", help="The site where they are.", autocompletion=site_names)
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `list` shows them.")]
All = Annotated[bool, typer.Option("--all", help="All that are there now.")]


def _mending(path: str) -> Callable[..., None]:
    """Make the command that has a node retry or drop messages."""

    def mend(
        file: MeshFile,
        site: OneSite,
        ids: Ids = None,
        all_: All = False,
        state: StateFolder = DEFAULT_STATE,
        as_json: AsJson = False,
    ) -> None:
        client = _client(file, site, state)
        _do(client, path, _selection(ids, all_), as_json)

    return mend


def put_aside_commands(aside: Aside, what: str) -> typer.Typer:
    """Make the commands for one of the two queues; `what` describes the content in a sentence."""
    name = f"isthmus {aside.value}"
    examples = "\n\n".join(f"{name} {words}" for words in _EXAMPLES)
    app = typer.Typer(
        help=f"{what}\n\nExamples:\n\n{examples}",
        no_args_is_help=True,
        rich_markup_mode="markdown",
    )

    @app.command("list", help=_HELP["list"].format(name=name))
    def list_(
        file: MeshFile,
        site: Annotated[
            list[str] | None,
            typer.Option(
                "--site", help="Of this site; of all, if left out.", autocompletion=site_names
            ),
        ] = None,
        most: Annotated[int, typer.Option("--most", "-n", min=0, help="Shown of each.")] = 100,
        state: StateFolder = DEFAULT_STATE,
        as_json: AsJson = False,
    ) -> None:
        mesh = mesh_or_known(file, state, site or ())
        sites = site or list(mesh.sites)
        site_or_exit(file, mesh, *sites)
        looks: dict[str, Any] = {}
        failed = False
        for one in sites:
            try:
                asyncio.run(look_into(looks, NodeClient.of(state, one), aside, most=most))
            except (NodeAway, NodeSaysNo) as error:
                typer.echo(str(error), err=True)
                failed = True
        if as_json:
            typer.echo(json.dumps({"sites": looks}, indent=1))
        else:
            _print_list(aside, looks)
        if failed:
            raise typer.Exit(EXIT_FAULT)

    @app.command("show", help=_HELP["show"].format(name=name))
    def show(
        file: MeshFile,
        id_: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
        site: OneSite,
        state: StateFolder = DEFAULT_STATE,
        as_json: AsJson = False,
    ) -> None:
        client = _client(file, site, state)
        for message in _look(client, aside)["messages"]:
            if message["id"] == id_:
                if as_json:
                    typer.echo(json.dumps(message, indent=1))
                else:
                    _print_message(message)
                return
        exit_with(f"{site}: there is no {id_} among its first {aside.value}", EXIT_FAULT)

    for done in ("retry", "drop"):
        app.command(done, help=_HELP[done].format(name=name))(_mending(f"{aside.value}/{done}"))

    @app.command("export", help=_HELP["export"].format(name=name))
    def export(
        file: MeshFile,
        site: OneSite,
        to: Annotated[Path, typer.Option("--to", metavar="PATH", help="A file that is not there.")],
        state: StateFolder = DEFAULT_STATE,
    ) -> None:
        client = _client(file, site, state)
        look = _look(client, aside)
        try:
            with to.open("x") as out:
                for message in look["messages"]:
                    out.write(json.dumps(message) + "\n")
        except OSError as error:
            exit_with(f"{to}: {error.strerror}", EXIT_USAGE)
        left = look["total"] - len(look["messages"])
        typer.echo(f"{to}: {counted(len(look['messages']), 'message')}; they stay in their queue")
        if left > 0:
            typer.echo(f"{left} more wait behind them: drop or retry the first ones", err=True)

    return app


dead_letters = put_aside_commands(
    Aside.DEAD_LETTERS,
    "Messages that a site's broker refused too often: list, show, retry, drop, export.",
)
quarantine = put_aside_commands(
    Aside.QUARANTINE, "What may not be guessed about: list, show, retry, drop, export."
)


def _client(file: Path, site: str, state: Path) -> NodeClient:
    mesh = mesh_or_known(file, state, [site])
    site_or_exit(file, mesh, site)
    try:
        return NodeClient.of(state, site)
    except NodeAway as error:
        exit_with(str(error), EXIT_FAULT)


def _look(client: NodeClient, aside: Aside) -> dict[str, Any]:
    """Return all that the nodes of a site have, with bodies; end the command if none answers."""
    looks: dict[str, Any] = {}
    try:
        asyncio.run(look_into(looks, client, aside, bodies=1))
    except (NodeAway, NodeSaysNo) as error:
        if client.site not in looks:
            exit_with(str(error), EXIT_FAULT)
        typer.echo(str(error), err=True)  # of slots that others have
    look: dict[str, Any] = looks[client.site]
    return look


def _selection(ids: list[str] | None, all_: bool) -> dict[str, Any]:
    if bool(ids) == all_:
        exit_with("say which: one or more IDs, or --all", EXIT_USAGE)
    return {"all": True} if all_ else {"ids": ids}


def _do(client: NodeClient, path: str, selection: dict[str, Any], as_json: bool) -> None:
    results: list[dict[str, Any]] = []

    async def run() -> None:
        async for result in client.post(path, selection):
            results.append(result)
            if not as_json:
                note = f": {result['said']}" if result["said"] else ""
                typer.echo(f"{result['id']} {result['outcome']}{note}")
                sys.stdout.flush()

    problem = ""
    try:
        asyncio.run(run())
    except (NodeAway, NodeSaysNo) as error:
        problem = str(error)
    if problem and not results:
        exit_with(problem, EXIT_FAULT)
    counts = Counter(result["outcome"] for result in results)
    missing = sorted(set(selection.get("ids", ())) - {result["id"] for result in results})
    if as_json:
        typer.echo(json.dumps({"results": results, "missing": missing}, indent=1))
    else:
        typer.echo(", ".join(f"{count} {word}" for word, count in counts.items()) or "none there")
        if missing:
            typer.echo(f"not there: {', '.join(missing)}", err=True)
    if problem:
        typer.echo(problem, err=True)
    if problem or counts["kept"] or missing:
        raise typer.Exit(EXIT_FAULT)


def _print_list(aside: Aside, looks: dict[str, Any]) -> None:
    console = Console()
    for site, look in looks.items():
        if not look["total"]:
            console.print(f"{site}: none")
            continue
        table = Table(title=f"{site}: {look['total']:,} {aside.value}", title_justify="left")
        for heading in ("id", "exchange", "key", "from", "bytes", "reason"):
            table.add_column(heading, justify="right" if heading == "bytes" else "left")
        for one in look["messages"]:
            table.add_row(
                one["id"],
                one["exchange"],
                one["routing_key"],
                one["path"][0] if one["path"] else "?",
                f"{one['bytes']:,}",
                one["reason"],
            )
        console.print(table)
        if look["total"] > len(look["messages"]):
            console.print(f"... and {look['total'] - len(look['messages']):,} more")


def _print_message(message: dict[str, Any]) -> None:
    body = base64.b64decode(message["body_base64"])
    for name in ("id", "reason", "attempts", "exchange", "routing_key", "batch", "identity"):
        typer.echo(f"{name}: {message[name]}")
    typer.echo(f"path: {', '.join(message['path'])}")
    if message["published_ms"] is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(message["published_ms"] / 1000))
        typer.echo(f"published: {when}")
    typer.echo(f"body, {len(body):,} bytes:")
    typer.echo(body[:SHOWN_BYTES].decode(errors="backslashreplace"))
    if len(body) > SHOWN_BYTES:
        typer.echo("... --json shows all of it")
