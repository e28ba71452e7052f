"""`isthmus repair FILE --audit DIR`: resend messages that an audit found lost, and audit again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from federation.wording import counted
from isthmus.display import status_line
from isthmus.lost_messages import AFTER, LOST, AuditFolder, BadAudit, Lost, read_audit, second_audit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    MeshFile,
    StateFolder,
    exit_with,
    grouped,
    mesh_or_exit,
)
from isthmus.repair import RepairWork, by_destination

SHOWN = 20
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """Course of a repair."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which logs still have it; send nothing.")
    ] = False
    rate: Annotated[
        str, typer.Option(metavar="N/s", help="So many messages a second, from each site.")
    ] = "1000/s"
    wait_s: Annotated[
        float,
        typer.Option("--wait", metavar="S", min=0, help="For what was sent and does not arrive."),
    ] = WAIT_S
    no_audit: Annotated[bool, typer.Option("--no-audit", help="Leave out the second audit.")] = (
        False
    )
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master. Default: the first audit's."),
    ] = None


@grouped
def repair(
    file: MeshFile,
    audit: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the audit's report.")],
    options: RepairOptions,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Send exactly the messages that an audit found lost once more, out of the log of any site that
    still has them, to the sites that lack them.

    Messages keep their identities and get the header `x-mesh-repaired`. Each site's barrier
    suppresses those that arrived meanwhile, or by an earlier repair: a second repair does no harm.
    Asks the nodes of this machine. In the end an audit of the same time, with the options of the
    first (--ledger, --receipts, --work, --master), shows the difference; its report goes to
    DIR/after-repair.

    Exit status 0: nothing is lost any more. 1: some messages are in no log any more, or still lost.
    2: not all sites could be asked or reached, or the second audit cannot prove the repair; the
    remedy is printed. Also if the call is wrong.

    Example: isthmus repair mesh.yaml --audit .isthmus/audit/from=2026-11-21
    """
    per_second = _rate(options.rate)
    mesh = mesh_or_exit(file, ())
    try:
        folder = read_audit(audit)
    except BadAudit as error:
        exit_with(str(error), EXIT_USAGE)
    if folder.report["mesh"] != mesh.name:
        exit_with(
            f"{audit} is an audit of mesh {folder.report['mesh']}, {file} is {mesh.name}",
            EXIT_USAGE,
        )
    work = RepairWork(mesh, state, folder.lost, warn=partial(typer.echo, err=True))
    with status_line("repair") as say:
        asyncio.run(_work(work, per_second, options.wait_s, say, dry_run=options.dry_run))
    report: dict[str, Any] = {"audit": str(audit), "dry_run": options.dry_run, **work.as_json()}
    if not as_json:
        _show(work, folder, dry_run=options.dry_run)
    status = _status(work, dry_run=options.dry_run)
    if not options.dry_run and not options.no_audit and folder.lost:
        after = _audit_again(file, folder, options.master, state)
        report["after"] = after
        if not as_json:
            _show_difference(folder, after, audit / AFTER)
        if after is None:
            status = status or EXIT_USAGE
        elif after["findings"].get(LOST):
            status = status or EXIT_FAULT
        elif after["why_not_proven"]:
            status = status or EXIT_USAGE
    if as_json:
        typer.echo(json.dumps(report, indent=1))
    raise typer.Exit(status)


async def _work(work: RepairWork, rate: float, wait_s: float, say: Any, *, dry_run: bool) -> None:
    await work.run(rate, say, dry_run=dry_run)
    if dry_run or not work.lost:
        return
    await work.wait(wait_s, say)
    say("writing the ledgers")
    for site, why in (await work.write_ledgers()).items():
        if site in work.batches or site in work.sent:
            work.problems.setdefault(site, why)


def _rate(text: str) -> float:
    try:
        rate = float(text.removesuffix("/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        exit_with(f"--rate {text!r}: say it as 500/s", EXIT_USAGE)
    return rate


def _status(work: RepairWork, *, dry_run: bool) -> int:
    if work.irrecoverable or work.departed:
        return EXIT_FAULT
    if work.not_asked or work.refused or (not dry_run and any(work.batches.values())):
        return EXIT_USAGE
    return 0


def _show(work: RepairWork, folder: AuditFolder, *, dry_run: bool) -> None:
    if not work.lost:
        typer.echo(f"{folder.folder}: nothing is lost, there is nothing to repair")
    for site, sent in work.sent.items():
        to = ", ".join(f"{count:,} to {n}" for n, count in by_destination(sent, work.names).items())
        verb = "has" if dry_run else "has sent"
        typer.echo(f"{site} {verb} {counted(len(sent), 'message')}: {to}")
    _list(work, "irrecoverable", work.irrecoverable, "no site's log has it any more")
    _list(work, "departed", work.departed, "its destination is not in the mesh file any more")
    for one, why in work.refused[:SHOWN]:
        _list(work, "not sent", [one], why)
    if len(work.refused) > SHOWN:
        typer.echo(
            f"... and {len(work.refused) - SHOWN:,} more not sent: --json lists all", err=True
        )
    if work.not_asked:
        typer.echo(
            f"{counted(len(work.not_asked), 'message')} no site that was asked has in its log, and"
            " not all could be asked:",
            err=True,
        )
    for why in work.problems.values():
        typer.echo(why, err=True)
    for kind, count in folder.other_findings.items():
        typer.echo(f"{count:,} {kind}: that is nothing that a repair mends", err=True)


def _list(work: RepairWork, what: str, lost: list[Lost], why: str) -> None:
    for one in lost[:SHOWN]:
        way = " to ".join(work.names.get(site, site) for site in (one.origin, one.destination))
        typer.echo(
            f"{what}: {one.identity.hex()} of {one.exchange}, {way}, published"
            f" {one.published}: {why}",
            err=True,
        )
    if len(lost) > SHOWN:
        typer.echo(f"... and {len(lost) - SHOWN:,} more {what}: --json lists all", err=True)


def _audit_again(
    file: Path, folder: AuditFolder, master: str | None, state: Path
) -> dict[str, Any] | None:
    """Audit the same time again; return the report, or None without."""
    out = folder.folder / AFTER
    report_file = out / "report.json"
    report_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "isthmus", *second_audit(folder, file, out, state, master)]
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    try:
        report: dict[str, Any] = json.loads(report_file.read_text())
    except (OSError, ValueError):
        typer.echo(f"the second audit ended with exit status {ended.returncode}", err=True)
        return None
    return report


def _show_difference(folder: AuditFolder, after: dict[str, Any] | None, out: Path) -> None:
    if after is None:
        return
    before = folder.report
    typer.echo(
        f"lost: {before['findings'].get(LOST, 0):,} before, {after['findings'].get(LOST, 0):,} now"
    )
    typer.echo(f"repaired: {after['totals'].get('repaired', 0):,}")
    typer.echo(after.get("sentence") or f"verdict: {after['verdict']}, before: {before['verdict']}")
    for why in after.get("why_not_proven", ())[:SHOWN]:
        typer.echo(f"not proven: {why}")
    typer.echo(f"report: {out / 'report.html'}")
