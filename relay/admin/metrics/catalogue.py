"""Catalogue of all metrics of a process, and the figures of its report that have none."""

from __future__ import annotations

from collections.abc import Mapping

from relay.admin.metrics.content_metrics import CONTENT_METRICS
from relay.admin.metrics.definition import MetricDefinition, ReportSection
from relay.admin.metrics.link_metrics import (
    GROUP_METRICS,
    LANE_METRICS,
    LANE_RECEIVER_METRICS,
    LINK_METRICS,
    RECEIVER_METRICS,
)
from relay.admin.metrics.site_metrics import (
    DELAY_METRICS,
    LOG_METRICS,
    PROCESS_METRICS,
    SITE_METRICS,
    SLOT_METRICS,
)

CATALOGUE: tuple[MetricDefinition, ...] = (
    *PROCESS_METRICS,
    *SITE_METRICS,
    *DELAY_METRICS,
    *LOG_METRICS,
    *SLOT_METRICS,
    *CONTENT_METRICS,
    *LINK_METRICS,
    *LANE_METRICS,
    *RECEIVER_METRICS,
    *LANE_RECEIVER_METRICS,
    *GROUP_METRICS,
)

LEFT_OUT: Mapping[tuple[ReportSection, str], str] = {
    (ReportSection.PROCESS, "pid"): "process_start_time_seconds shows a new process",
    (ReportSection.SITE, "node_pid"): "process_start_time_seconds shows a new process",
}
"""Numbers of the report without a metric, and why."""
