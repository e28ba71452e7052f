"""The folder of a report: its page, its JSON, and its tables."""

from __future__ import annotations

import json
from pathlib import Path

from federation import durable_file
from spark_audit.report.advice import Commands
from spark_audit.report.counts import counts_table
from spark_audit.report.html import page
from spark_audit.report.report import AuditReport


def write_report(report: AuditReport, folder: Path, commands: Commands | None = None) -> None:
    """report.html, report.json, and the tables findings.parquet and counts.parquet. `commands`:
    as the page is to tell them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report.table.coalesce(1).write.mode("overwrite").parquet(str(folder / "findings.parquet"))
    table = counts_table(report.table.sparkSession, report.counts)
    table.coalesce(1).write.mode("overwrite").parquet(str(folder / "counts.parquet"))
    commands = commands or Commands(out=str(folder))
    durable_file.write(folder / "report.json", json.dumps(report.as_json(), indent=1) + "\n")
    durable_file.write(folder / "report.html", page(report, commands))
