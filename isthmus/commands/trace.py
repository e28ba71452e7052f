"""`isthmus trace FILE ID`: life of one message."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dedup.identity import IDENTITY_BYTES, text_identity, uuid_of
from federation.mesh import IdentityKind, Mesh
from isthmus.known.known_meshes import mesh_or_known
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    LedgerFolder,
    MeshFile,
    StateFolder,
    exit_with,
    ledger_or_own,
)
from spark_audit.ledger_search import LedgerNotFound, LedgerSearch
from spark_audit.trace import TracedMessage, TraceResult, TraceStep
from spark_audit.trace import trace as traced

_SAY_AFTER_S = 2
_COLOURS = {"missing": "red", "settled": "green", "published": "bold"}


def trace(
    file: MeshFile,
    message: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Its message_id, or its identity as the audit names it (hex)."
        ),
    ],
    day: Annotated[
        str | None,
        typer.Option(
            "--date", metavar="DATE", help="About when it was published, UTC: searches less."
        ),
    ] = None,
    ledger: LedgerFolder = None,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Show the whole life of one message: where and when it was published, its batch, its path with
    times, and the barrier's answer at each site.

    The sites' ledgers are searched. Exit status 0 if the message was found, 1 if not, 2 if the
    ledgers or the call are wrong.

    Example: isthmus trace mesh.yaml 5b1c4a3e-8a53-4b0c-9a53-8f4f7a1c2d3e --date 2026-11-21
    """
    try:
        about = date.fromisoformat(day) if day else None
    except ValueError as error:
        exit_with(f"--date {day!r}: {error}", EXIT_USAGE)
    mesh = mesh_or_known(file, state)
    identities = identities_of(message)
    say = _progress()
    try:
        search = LedgerSearch.open(ledger_or_own(ledger, state), say)
    except LedgerNotFound as error:
        exit_with(f"no ledgers: {error}", EXIT_USAGE)
    found = traced(search, list(identities), about)
    say("")
    forms = {identity.hex(): form for identity, form in identities.items()}
    if as_json:
        report = {"id": message, "identities": forms, **found.as_json()}
        typer.echo(json.dumps(report, indent=1))
    else:
        console = Console(highlight=False)
        for one in found.messages:
            _show(console, one, forms.get(one.identity, ""))
        for name, why in found.bad.items():
            console.print(Text(f"not searched: {name}: {why}", style="red"), soft_wrap=True)
        if not found.messages:
            for line in not_found(message, forms, found, mesh):
                console.print(Text(line), soft_wrap=True)
    if not found.messages:
        raise typer.Exit(EXIT_FAULT)


def identities_of(message: str) -> dict[bytes, str]:
    """Return possible identities of the message, with their kinds."""
    found: dict[bytes, str] = {}
    text = message.strip()
    if (identity := uuid_of(text.encode())) is not None:
        found[identity] = "a UUID"
    plain = text.removeprefix("0x")
    if len(plain) == 2 * IDENTITY_BYTES:
        with contextlib.suppress(ValueError):  # otherwise a text of equal length
            found.setdefault(bytes.fromhex(plain), "an identity")
    if (identity := text_identity(message.encode())) is not None:
        found.setdefault(
            identity, "the hash of a text, as with `identity: message_id` or `header:`"
        )
    return found


def not_found(message: str, forms: dict[str, str], found: TraceResult, mesh: Mesh) -> list[str]:
    """Return lines on the search and possible reasons for its failure."""
    dates = f"of {found.dates[0]} to {found.dates[1]}" if found.dates else "(there are none)"
    sites = ", ".join(found.sites) or "no site"
    lines = [f"{message}: no ledger has it. Searched: {found.files} files {dates}, of {sites}"]
    lines += [f"  for {identity}, {form}" for identity, form in forms.items()]
    lines.append("So, one of these:")
    lines.append("  it was never taken off an exchange of the mesh at any of these sites;")
    lines.append("  it was just now: rows become files after 5 minutes, at quiet sites in an hour;")
    lines.append("  its ledger is not among these, or is of another time;")
    others = [
        f"{exchange.name} ({exchange.identity.kind.value})"
        for exchange in mesh.exchanges.values()
        if exchange.identity.kind not in (IdentityKind.UUID, IdentityKind.MESSAGE_ID)
    ]
    if others:
        lines.append(
            f"  it is of an exchange that does not go by message_id: {', '.join(others)}; there the"
            " header's value finds it, or its identity;"
        )
    lines.append("  its message_id is no UUID, and its exchange goes by UUIDs: it has one of ours.")
    missing = [site for site in mesh.sites if site not in found.sites]
    if missing:
        lines.append(f"There is no ledger of {', '.join(missing)}.")
    return lines


def _show(console: Console, message: TracedMessage, form: str) -> None:
    title = Text(f"{message.identity}, exchange {message.exchange}", style="bold")
    console.print(title, Text(f"({form})" if form else "", style="dim"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    for is_narrow in (True, True, True, False):
        table.add_column(overflow="fold", no_wrap=is_narrow)
    published = message.published_ms
    for step in message.steps:
        table.add_row(
            _clock(step.at_ms),
            _since(step.at_ms, published),
            Text(step.site),
            Text(_step_text(step), style=_COLOURS.get(step.what, "")),
        )
    console.print(table)


def _step_text(step: TraceStep) -> str:
    if step.what in ("published", "packed"):
        return f"{step.what}: {step.text}"
    if step.what == "came" and step.path:
        return f"{step.text}, by {' > '.join(step.path)}"
    return f"{step.text}, content hash {step.content}" if step.content else step.text


def _clock(at_ms: int | None) -> str:
    if at_ms is None:
        return "never"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _since(at_ms: int | None, published_ms: int | None) -> str:
    if at_ms is None or published_ms is None:
        return ""
    return f"{(at_ms - published_ms) / 1000:+.3f} s"


def _progress() -> Callable[[str], None]:
    """Return a function that shows the progress of a long search in one line of a terminal; ""
    clears the line.
    """
    began = time.monotonic()
    if not sys.stderr.isatty():
        return lambda text: None

    def say(text: str) -> None:
        if time.monotonic() - began > _SAY_AFTER_S:
            line = f"searching {text}" if text else ""
            typer.echo(f"\r\x1b[K{line}", nl=False, err=True)

    return say
