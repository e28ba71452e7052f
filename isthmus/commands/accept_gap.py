"""`isthmus accept-gap FILE SITE`: have stages go on without messages that their log has lost."""

from __future__ import annotations

import asyncio
import getpass
import json
import platform
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from isthmus.hold_orders import running_slots_or_exit
from isthmus.known.known_meshes import mesh_or_known
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    MeshFile,
    SiteName,
    StateFolder,
    exit_with,
    site_or_exit,
)
from isthmus.up.supervisor_record import read_record
from relay.log.open_gap import OpenGap
from relay.operator.gaps import accept, read_open_gaps

OBEYED_WITHIN_S = 15.0
POLL_S = 0.2


def accept_gap(
    file: MeshFile,
    site: SiteName,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", metavar="FROM-TO", help="Only of this link; may be repeated."),
    ] = None,
    flow: Annotated[
        list[str] | None,
        typer.Option(
            "--flow",
            metavar="ORIGIN/EXCHANGE",
            help="Only of the delivery of what this site published there; may be repeated.",
        ),
    ] = None,
    gap_id: Annotated[
        list[str] | None,
        typer.Option(
            "--gap",
            metavar="ID",
            help="Only this gap, by its `id` in --json, unless it has grown; may be repeated.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Show the messages that a site's log has lost while they were needed, and go on without them.

    A link, a flow or a site's delivery whose next batch is gone (an outage beyond the outage
    window, a full log with `on_full: gap`) stops in state `gap`; others go on. The command lists
    the missing messages by name and asks; then the stopped stages go on with what the log still
    has. The ledger keeps who accepted the gap, when, and what was missing: the audit reports these
    messages as lost. Other paths may still bring them. A log that has lost more meanwhile has a new
    gap. Run the command where the site's state folder is.

    With --json there is no question, and only --yes accepts.

    Exit status 0 when all accepted stages go on, or nothing stands at a gap; 1 if something does
    not go on, or was not accepted.

    Example: isthmus accept-gap mesh.yaml paris --link paris-tokyo
    """
    mesh = mesh_or_known(file, state, [site])
    site_or_exit(file, mesh, site)
    slots, missing = running_slots_or_exit(state, site)
    names = {one.cluster_id: name for name, one in mesh.sites.items()}
    standing = _standing(slots)
    gaps = _chosen(site, [gap for _, gap in standing], link or (), flow or (), names)
    gaps = _by_id(site, gaps, gap_id or ())
    if not as_json:
        _show(site, gaps, names)
    # JSON output has no room for a question.
    is_accepted = yes or (not as_json and bool(gaps) and typer.confirm("go on without that?"))
    goes_on: set[str] = set()
    if gaps and is_accepted:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            for own, gap in standing:
                if gap in gaps:
                    accept(own, gap, f"{getpass.getuser()}@{platform.node()}", at)
        except OSError as error:
            exit_with(str(error), EXIT_FAULT)
        goes_on = asyncio.run(_obeyed(state, slots, gaps))
    if as_json:
        rows = [{**gap.as_json(), "goes_on": gap.id in goes_on} for gap in gaps]
        typer.echo(json.dumps({"site": site, "gaps": rows}, indent=1))
    elif is_accepted:
        _print_outcome(file, site, gaps, goes_on)
    if missing:
        typer.echo(missing, err=True)
    if missing or len(goes_on) < len(gaps):
        raise typer.Exit(EXIT_FAULT)


def _standing(slots: Sequence[Path]) -> list[tuple[Path, OpenGap]]:
    """Return the open gaps of a site's slots, by their folders, each with the slot's folder."""
    return [(own, gap) for own in slots for gap in read_open_gaps(own)]


def _chosen(
    site: str,
    stand: list[OpenGap],
    links: Sequence[str],
    flows: Sequence[str],
    names: dict[str, str],
) -> list[OpenGap]:
    """Return the gaps named by the options, or all; end the command if an option names none."""
    if not links and not flows:
        return stand
    chosen = [gap for gap in stand if _links(gap).intersection(links) or _flow(gap, names) in flows]
    found = {one for gap in chosen for one in _links(gap) or {_flow(gap, names)}}
    if missing := [one for one in (*links, *flows) if one not in found]:
        known = ", ".join(_who(gap, names) for gap in stand) or "nothing"
        exit_with(f"{site}: {', '.join(missing)} stands at no gap; {known} does", EXIT_USAGE)
    return chosen


def _by_id(site: str, gaps: list[OpenGap], ids: Sequence[str]) -> list[OpenGap]:
    """Return the gaps of these IDs, or all without IDs; end the command if there is none of an
    ID.
    """
    if missing := set(ids) - {gap.id for gap in gaps}:
        exit_with(
            f"{site}: no stage stands at the gap {', '.join(sorted(missing))}: the stage goes on,"
            " or the gap has grown; look again",
            EXIT_USAGE,
        )
    return [gap for gap in gaps if not ids or gap.id in ids]


def _links(gap: OpenGap) -> set[str]:
    """Return the names of the gap's link: a lane's own, and the whole link's."""
    return {gap.link, gap.link.partition(".")[0]} if gap.link else set()


def _flow(gap: OpenGap, names: dict[str, str]) -> str:
    return f"{names.get(gap.origin, gap.origin)}/{gap.exchange}" if gap.origin else ""


def _who(gap: OpenGap, names: dict[str, str]) -> str:
    if gap.link:
        return f"link {gap.link}"
    return f"flow {_flow(gap, names)}" if gap.origin else "delivery (the node has stopped)"


def _show(site: str, gaps: list[OpenGap], names: dict[str, str]) -> None:
    if not gaps:
        typer.echo(f"{site}: nothing stands at a gap")
    for gap in gaps:
        since = datetime.fromtimestamp(gap.since_ms / 1000, UTC).isoformat(timespec="seconds")
        # A link may not have been meant to carry all of it.
        most = "at most " if gap.link else ""
        count = "nobody knows how many" if gap.messages is None else f"{most}{gap.messages:,}"
        typer.echo(f"{site}: {_who(gap, names)} stands since {since}; missing ({count} messages):")
        for line in gap.missing(lambda cluster: names.get(cluster, cluster)):
            typer.echo(f"  {line}")


async def _obeyed(state: Path, slots: Sequence[Path], gaps: list[OpenGap]) -> set[str]:
    """Return the IDs of gaps that are closed, once all are or after a limit."""
    supervisor = read_record(state)
    stopped = any(gap.key == "delivery" for gap in gaps)
    if stopped and supervisor is not None and supervisor.is_alive:
        supervisor.mark.send(signal.SIGHUP)  # restarts stopped nodes
    limit = time.monotonic() + OBEYED_WITHIN_S
    while True:
        stand = {gap.id for _, gap in _standing(slots)}
        goes_on = {gap.id for gap in gaps} - stand
        if len(goes_on) == len(gaps) or time.monotonic() > limit:
            return goes_on
        await asyncio.sleep(POLL_S)


def _print_outcome(file: Path, site: str, gaps: list[OpenGap], goes_on: set[str]) -> None:
    for gap in gaps:
        if gap.id in goes_on:
            typer.echo(f"{site}: {_who(gap, {})} goes on")
        else:
            typer.echo(
                f"{site}: {gap.key} goes on as soon as its node runs: `isthmus relay {file} "
                f"--site {site}`, or see `isthmus status {file}`",
                err=True,
            )
