"""Names of series: those that expressions of alerts and boards have, and those that are served."""

from __future__ import annotations

import re

from relay.admin.metrics.catalogue import CATALOGUE
from relay.admin.metrics.definition import MetricType
from spark_audit.report.textfile import AUDIT_METRICS


def names_in(expression: str) -> set[str]:
    """Names of Isthmus's series in an expression."""
    return set(re.findall(r"\bisthmus_\w+", expression))


def series_names() -> set[str]:
    """Names of all series that nodes and audits serve."""
    names = {metric.name for metric in AUDIT_METRICS}
    for metric in CATALOGUE:
        ends = ("_bucket", "_count", "_sum") if metric.type is MetricType.HISTOGRAM else ("",)
        names |= {metric.name + end for end in ends}
    return names
