"""`isthmus audit FILE`: did everything that was published arrive? And ledgers to try it on."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isthmus.options import DEFAULT_STATE, EXIT_USAGE, AsJson, MeshFile, StateFolder, mesh_or_exit
from spark_audit.period import BadPeriod, Period

if TYPE_CHECKING:
    from spark_audit.report import AuditReport

SHOWN = 20
"""Findings and reasons on the terminal; the report has more, the table of findings all."""


class Level(StrEnum):
    EXACT = "exact"


class _FileFirst(typer.core.TyperGroup):
    """`audit FILE` as well as `audit generate OUT`: what is no command is a mesh file."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["file", *args]
        return super().parse_args(ctx, args)  # type: ignore[arg-type]


audit = typer.Typer(
    cls=_FileFirst,
    no_args_is_help=True,
    help="Prove from the sites' ledgers that what was published has arrived, or name what has not.",
    epilog="`isthmus audit FILE` audits; `isthmus audit file --help` has its options.",
)


@audit.command("file")
def audit_file(
    file: MeshFile,
    day: Annotated[
        str | None,
        typer.Option("--date", metavar="DATE", help="Messages published that day, UTC."),
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="... from then on, UTC.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="... and before then.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where the sites' ledgers lie, as Spark reads it: a folder for each site. "
            "Default: `sites` in the state folder.",
        ),
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark's master.")] = "local[*]",
    level: Annotated[Level, typer.Option(help="Every identity is checked.")] = Level.EXACT,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For report.json and the tables. Default: `audit` in the state folder.",
        ),
    ] = None,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Audit the messages of a day (default: yesterday).

    Exit status 0: proven, everything arrived or it is known why not. 1: findings. 2: not proven,
    since ledgers lack rows, or messages are still on their way; also if the call is wrong.
    """
    try:
        period = Period.parse(day, begin, end, datetime.now(UTC))
    except BadPeriod as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_USAGE) from None
    mesh = mesh_or_exit(file, ())
    from spark_audit.job import SMALL_BYTES, Audit
    from spark_audit.ledger_source import TooManyBadFiles
    from spark_audit.session import SparkMissing, spark_session

    ledger = ledger or str((state / "sites").absolute())
    out = out or state / "audit" / f"from={_folder_name(period)}"
    on_terminal = sys.stderr.isatty()
    say: Callable[[str], None] = _say if on_terminal else lambda text: None
    try:
        say("starting Spark")
        is_small = _local_bytes(ledger) < SMALL_BYTES
        with spark_session(master, progress=on_terminal, is_small=is_small) as spark:
            report = Audit(spark, mesh, ledger, period, say).run()
            report.write(out)
    except (SparkMissing, TooManyBadFiles) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_USAGE) from None
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1))
    else:
        show(report, out)
    raise typer.Exit(report.verdict.exit_status)


@audit.command("generate")
def generate(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that does not exist yet.")],
    sites: Annotated[int, typer.Option(min=2)] = 4,
    messages: Annotated[int, typer.Option(min=1)] = 100_000,
    seed: Annotated[int, typer.Option()] = 1,
    day: Annotated[str, typer.Option("--date", metavar="DATE")] = "2026-03-01",
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Plant a fault; may be repeated; `all` plants each."),
    ] = None,
) -> None:
    """Make the ledgers of a day that never was, with planted faults, and a mesh file.

    For trying the audit, and for seeing what a day of so many messages costs. What was planted
    stands in OUT/planted.json.
    """
    from spark_audit.generator import BadFault, generate_ledgers

    if out.exists():
        typer.echo(f"{out} exists already", err=True)
        raise typer.Exit(EXIT_USAGE)
    try:
        period = Period.of_day(date.fromisoformat(day))
        generate_ledgers(out, sites, messages, seed, period, fault or [])
    except (BadFault, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_USAGE) from None
    typer.echo(f"{out}: {messages} messages of {sites} sites; what was planted: planted.json; now")
    command = f"isthmus audit {out / 'mesh.yaml'} --ledger {out / 'sites'} --date {day}"
    typer.echo(f"{command} --out {out / 'audit'}")


def show(report: AuditReport, out: Path) -> None:
    """Tables, what is wrong, and the verdict in one sentence."""
    console = Console()
    console.print(_matrix(report))
    for line in _findings(report)[:SHOWN]:
        console.print(escape(line), soft_wrap=True)
    found = sum(report.findings.values())
    if found > SHOWN:
        console.print(f"... {found - SHOWN} more: {out / 'findings.parquet'}")
    reasons = report.why_not_proven
    for line in reasons[:SHOWN]:
        console.print(escape(f"not proven: {line}"), soft_wrap=True)
    if len(reasons) > SHOWN:
        console.print(f"... {len(reasons) - SHOWN} more reasons: {out / 'report.json'}")
    console.print(escape(sentence(report)), style="bold", soft_wrap=True)
    console.print(escape(f"report: {out / 'report.json'}"), soft_wrap=True)


def sentence(report: AuditReport) -> str:
    """The verdict, for people."""
    totals = report.totals
    arrived = totals["delivered"] + totals["late"]
    about = f"messages published from {report.period}"
    if report.findings:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.findings.items()))
        also = " (and not all of it can be told)" if report.why_not_proven else ""
        return f"FINDINGS: {kinds}, of {about}{also}"
    if report.why_not_proven:
        return f"NOT PROVEN: {arrived} deliveries are in order, of {about}, but see above"
    return f"PROVEN: all {about} arrived, {arrived} deliveries, or it is known why not"


def _matrix(report: AuditReport) -> Table:
    table = Table(title=f"mesh {report.mesh}: published from {report.period}", title_justify="left")
    for heading in ("from", "to", "delivered", "of note"):
        right = heading == "delivered"
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for (origin, destination), counts in report.pairs.items():
        notes = [
            f"{count} {verdict}"
            for verdict, count in sorted(counts.items())
            if verdict != "delivered"
        ]
        table.add_row(origin, destination, f"{counts['delivered']:,}", ", ".join(notes))
    return table


def _findings(report: AuditReport) -> list[str]:
    said = []
    for one in report.as_json()["shown"]:
        message = one["identity"] or one["batch"]
        said.append(
            f"{one['kind']}: {message} of {one['exchange']}, {one['origin']} to"
            f" {one['destination']}, published {one['published']}: {one['why']}"
        )
    return said


def _folder_name(period: Period) -> str:
    begin = datetime.fromtimestamp(period.from_ms / 1000, UTC)
    is_day = period == Period.of_day(begin.date())
    end = datetime.fromtimestamp(period.to_ms / 1000, UTC)
    if is_day:
        return begin.date().isoformat()
    return f"{begin:%Y-%m-%dT%H%M%S}-{end:%Y-%m-%dT%H%M%S}"


def _local_bytes(ledger: str) -> float:
    """Of all files, where they lie on this machine."""
    folder = Path(ledger.removeprefix("file://").removeprefix("file:"))
    if not folder.is_dir():
        return math.inf
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def _say(text: str) -> None:
    typer.echo(f"{text} ...", err=True)
