"""`isthmus audit FILE`: proof that published messages arrived; and ledgers to try the audit on."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isthmus.options import (
    DEFAULT_STATE,
    EXIT_USAGE,
    AsJson,
    LedgerFolder,
    MeshFile,
    StateFolder,
    exit_with,
    grouped,
    ledger_or_own,
    mesh_or_exit,
)
from spark_audit.level import Level
from spark_audit.period import BadPeriod, Period

if TYPE_CHECKING:
    from spark_audit.report.report import AuditReport

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
SHOWN = 20
"""Findings and reasons on the terminal; the report has more, the table of findings all."""


class _FileFirst(typer.core.TyperGroup):
    """Group that takes `audit FILE` beside `audit generate OUT`: a first word that is no command is
    a file.
    """

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


@dataclass(frozen=True, slots=True)
class PeriodOptions:
    """Period of an audit."""

    day: Annotated[
        str | None,
        typer.Option("--date", metavar="DATE", help="Messages published that day, UTC."),
    ] = None
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Published from then on, UTC."),
    ] = None
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="Published before then, UTC."),
    ] = None


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Sources, method and results of an audit."""

    ledger: LedgerFolder = None
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master. Default: this machine, `local[*]`."),
    ] = None
    level: Annotated[
        Level,
        typer.Option(
            help="exact: every identity is checked. fingerprint: sums are compared, and only what "
            "differs is opened; it reads less, and tells a little less."
        ),
    ] = Level.EXACT
    receipts: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="What publishers and consumers wrote down themselves: Parquet, JSON Lines or CSV, "
            "a file or a folder.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For report.html, report.json and the tables. Default: `audit` in the state "
            "folder.",
        ),
    ] = None
    results: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The folder of the tables that grow by a day a run, as Spark writes it, from which"
            " the next run knows what was left open. Default: `tables` beside the report; none with"
            " --out, nor for what is not a whole day.",
        ),
    ] = None
    work: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="On a cluster: a folder that all its workers reach. What is kept meanwhile goes "
            "into a folder of this run's own there, and that away in the end. Default: --out's.",
        ),
    ] = None

    textfile: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="For the verdict as metrics: a file NAME.prom that node exporter's textfile "
            "collector reads.",
        ),
    ] = None


@audit.command("file")
@grouped
def audit_file(
    file: MeshFile,
    time_options: PeriodOptions,
    options: AuditOptions,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Audit the messages of a day (default: yesterday), and look again for messages that earlier
    audits left open.

    Exit status 0: proven, everything arrived or its absence is explained. 1: findings. 2: not
    proven, since ledgers lack rows, or messages are still on their way; also if the call is wrong.
    """
    try:
        period = Period.parse(
            time_options.day, time_options.begin, time_options.end, datetime.now(UTC)
        )
    except BadPeriod as error:
        exit_with(str(error), EXIT_USAGE)
    mesh = mesh_or_exit(file, ())
    _check_textfile(options.textfile)
    from spark_audit.job import SMALL_BYTES, Audit
    from spark_audit.ledgers.source import TooManyBadFiles
    from spark_audit.nightly import NightlyAudit
    from spark_audit.receipts.receipts import BadReceipts
    from spark_audit.report.advice import Commands
    from spark_audit.report.html import write_report
    from spark_audit.session import (
        ProgressLine,
        SparkEnded,
        SparkFailed,
        SparkMissing,
        is_on_one_machine,
        spark_session,
    )

    ledger, results = ledger_or_own(options.ledger, state), options.results
    reports = state / "audit"
    one_day = _one_day(period)
    if results is not None and one_day is None:
        exit_with("--results is of whole days: say --date", EXIT_USAGE)
    if results is None and options.out is None and one_day is not None:
        results = str((reports / "tables").absolute())
    reported = [] if options.out else _reported(reports)
    again_in = options.out or reports
    out = options.out or reports / f"from={_folder_name(period)}"
    is_small = _local_bytes(ledger) < SMALL_BYTES

    given = _given_options(
        ledger=ledger, receipts=options.receipts, work=options.work, master=options.master
    )

    def write(folder: Path, report: AuditReport) -> None:
        report = replace(report, asked=given)
        write_report(report, folder, Commands(str(file), str(folder), options.ledger))

    try:
        with ProgressLine() as progress:
            progress("starting Spark")
            with spark_session(options.master or "", is_small=is_small) as spark:
                progress.spark = spark
                kept = "" if is_on_one_machine(spark) else _folder_within(options.work, out)
                job: Audit | NightlyAudit
                if results is not None:
                    job = NightlyAudit(
                        *(spark, mesh, ledger, results, _now_ms, progress),
                        on_report=lambda day, report: write(again_in / f"from={day}", report),
                        receipts=options.receipts,
                        level=options.level,
                        work=kept,
                        reported=reported,
                    )
                else:
                    job = Audit(
                        *(spark, mesh, ledger, period, progress),
                        receipts=options.receipts,
                        level=options.level,
                        work=kept,
                    )
                try:
                    if isinstance(job, NightlyAudit):
                        report = job.run(one_day or date.min)
                    else:
                        report = job.run()
                    progress("writing the report")
                    write(out, report)
                finally:
                    job.clear()
    except (SparkMissing, SparkEnded, SparkFailed, TooManyBadFiles, BadReceipts) as error:
        exit_with(str(error), EXIT_USAGE)
    if as_json:
        typer.echo(json.dumps(replace(report, asked=given).as_json(), indent=1))
    else:
        show(report, out)
    _write_textfile(options.textfile, report)
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
    bulk: Annotated[
        bool,
        typer.Option(
            "--bulk",
            help="Many messages fast, without faults, of identities that can be compressed: for "
            "seeing what a day of hundreds of millions costs.",
        ),
    ] = False,
) -> None:
    """Make the ledgers of an invented day, with planted faults, and a mesh file.

    For trying the audit, and for seeing the cost of a day of so many messages. The planted faults
    are listed in OUT/planted.json.
    """
    from spark_audit.generate.bulk import generate_bulk
    from spark_audit.generate.generator import BadFault, generate_ledgers

    if bulk and fault:
        exit_with("--bulk plants no faults", EXIT_USAGE)
    if out.exists():
        exit_with(f"{out} exists already", EXIT_USAGE)
    try:
        period = Period.of_day(date.fromisoformat(day))
        if bulk:
            messages = generate_bulk(out, sites, messages, period, small=True)
        else:
            generate_ledgers(out, sites, messages, seed, period, fault or [])
    except (BadFault, ValueError) as error:
        exit_with(str(error), EXIT_USAGE)
    planted = "" if bulk else "; what was planted: planted.json"
    typer.echo(f"{out}: {messages} messages of {sites} sites{planted}; now")
    command = f"isthmus audit {out / 'mesh.yaml'} --ledger {out / 'sites'} --date {day}"
    typer.echo(f"{command} --out {out / 'audit'}")


def show(report: AuditReport, out: Path) -> None:
    """Print tables, findings, and the verdict in one sentence."""
    console = Console()
    console.print(_matrix(report))
    for line in _findings(report)[:SHOWN]:
        console.print(escape(line), soft_wrap=True)
    found = sum(report.findings.values())
    if found > SHOWN:
        console.print(f"... {found - SHOWN} more: {out / 'findings.parquet'}")
    if report.carried is not None:
        for line in report.carried.lines:
            console.print(escape(f"of earlier days: {line}"), soft_wrap=True)
    for gap in report.accepted_gaps[:SHOWN]:
        console.print(escape(f"accepted gap: {gap}"), soft_wrap=True)
    reasons = report.why_not_proven
    for line in reasons[:SHOWN]:
        console.print(escape(f"not proven: {line}"), soft_wrap=True)
    if len(reasons) > SHOWN:
        console.print(f"... {len(reasons) - SHOWN} more reasons: {out / 'report.json'}")
    for line in report.level.blind_spots:
        console.print(escape(f"not told at this level: {line}"), soft_wrap=True)
    console.print(escape(report.sentence), style="bold", soft_wrap=True)
    console.print(escape(f"report: {out / 'report.html'}"), soft_wrap=True)


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
    lines = []
    for one in report.as_json()["shown"]:
        message = one["identity"] or one["batch"] or "a message"
        lines.append(
            f"{one['kind']}: {message} of {one['exchange'] or 'some exchange'},"
            f" {one['origin'] or 'nobody known'} to {one['destination'] or 'anywhere'},"
            f" published {one['published'] or 'nobody knows when'}: {one['why']}"
        )
    return lines


def _check_textfile(path: Path | None) -> None:
    """Exit, before any work, if the metrics would be read by nobody."""
    if path is not None:
        from spark_audit.report.textfile import TextfileUnusable, check_textfile

        try:
            check_textfile(path)
        except TextfileUnusable as error:
            exit_with(f"--textfile: {error}", EXIT_USAGE)


def _write_textfile(path: Path | None, report: AuditReport) -> None:
    if path is not None:
        from spark_audit.report.textfile import write_textfile

        try:
            write_textfile(path, report, _now_ms() / 1000)
        except OSError as error:
            exit_with(
                f"--textfile: {error}; the report is written, the metrics are not", EXIT_USAGE
            )


def _folder_within(work: str | None, out: Path) -> str:
    """Return a folder for this run alone: concurrent runs may share `work`, and the folder is
    deleted at the end.
    """
    return f"{(work or out.absolute().as_uri()).rstrip('/')}/isthmus-audit-{uuid.uuid4().hex}"


def _folder_name(period: Period) -> str:
    if (day := _one_day(period)) is not None:
        return day.isoformat()
    begin = datetime.fromtimestamp(period.from_ms / 1000, UTC)
    end = datetime.fromtimestamp(period.to_ms / 1000, UTC)
    return f"{begin:%Y-%m-%dT%H%M%S}-{end:%Y-%m-%dT%H%M%S}"


def _one_day(period: Period) -> date | None:
    """Return the day of a period, or None if not exactly a day."""
    day = datetime.fromtimestamp(period.from_ms / 1000, UTC).date()
    return day if period == Period.of_day(day) else None


def _given_options(**options: str | None) -> dict[str, str]:
    """Return the given options, local paths made absolute, so that an audit can be repeated from
    any folder.
    """
    return {
        option: str(Path(value).absolute()) if Path(value).exists() else value
        for option, value in options.items()
        if value
    }


def _reported(folder: Path) -> list[str]:
    """Return the days with a report in the folder."""
    names = [file.parent.name.removeprefix("from=") for file in folder.glob("from=*/report.json")]
    return [name for name in names if _DAY.fullmatch(name)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _local_bytes(ledger: str) -> float:
    """Return the size of a local ledger, or infinity elsewhere."""
    folder = Path(ledger.removeprefix("file://").removeprefix("file:"))
    if not folder.is_dir():
        return math.inf
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))
