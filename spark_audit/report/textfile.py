"""Metrics of an audit's outcome, in a file for node exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Enum, Gauge, write_to_textfile

from spark_audit.report.report import AuditReport, AuditVerdict


class AuditMetric(NamedTuple):
    """Name, type as in the catalogue of a node's metrics, and help; the label is `mesh`."""

    name: str
    type: str
    help: str


VERDICT = AuditMetric(
    "isthmus_audit_last_verdict", "stateset", "Verdict of the last audit: 1 for the present one."
)
FINDINGS = AuditMetric("isthmus_audit_findings", "gauge", "Findings of the last audit.")
END = AuditMetric(
    "isthmus_audit_end_timestamp_seconds", "gauge", "Time (since 1970) at which the audit ended."
)
PERIOD_END = AuditMetric(
    "isthmus_audit_period_end_timestamp_seconds",
    "gauge",
    "End (since 1970) of the period that the audit was of.",
)
AUDIT_METRICS = (VERDICT, FINDINGS, END, PERIOD_END)


class TextfileUnusable(Exception):
    """The path cannot be a file for the textfile collector."""


def check_textfile(path: Path) -> None:
    """Raise TextfileUnusable, with what to do, unless the collector would read a file there."""
    if path.suffix != ".prom":
        raise TextfileUnusable(f"{path}: node exporter reads only files that end in .prom")
    if not path.parent.is_dir():
        raise TextfileUnusable(
            f"{path.parent} is no folder: name a file in the folder of node exporter's"
            " --collector.textfile.directory"
        )


def write_textfile(path: Path, report: AuditReport, ended_s: float) -> None:
    """Write the metrics of a report, whose audit ended at `ended_s` (since 1970), as a whole or not
    at all. Raises OSError.
    """
    registry = CollectorRegistry()
    states = [verdict.value for verdict in AuditVerdict]
    verdict = Enum(VERDICT.name, VERDICT.help, ["mesh"], states=states, registry=registry)
    verdict.labels(report.mesh).state(report.verdict.value)
    for metric, value in (
        (FINDINGS, sum(report.findings.values())),
        (END, ended_s),
        (PERIOD_END, report.period.to_ms / 1000),
    ):
        Gauge(metric.name, metric.help, ["mesh"], registry=registry).labels(report.mesh).set(value)
    write_to_textfile(str(path), registry)
