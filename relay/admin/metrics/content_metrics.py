"""Metrics of the content stores of sites, in which large messages are kept."""

from __future__ import annotations

from relay.admin.metrics.definition import MetricDefinition, MetricType, ReportSection

_COUNTER, _CONTENT = MetricType.COUNTER, ReportSection.CONTENT

CONTENT_METRICS = (
    MetricDefinition(
        "isthmus_content_stored_total",
        _COUNTER,
        _CONTENT,
        "stored",
        "Contents of pieces of large messages that were written into the store.",
    ),
    MetricDefinition(
        "isthmus_content_stored_bytes_total",
        _COUNTER,
        _CONTENT,
        "stored_bytes",
        "Bytes of these contents.",
    ),
    MetricDefinition(
        "isthmus_content_shared_total",
        _COUNTER,
        _CONTENT,
        "shared",
        "Contents that were in the store already, and were not written again.",
    ),
    MetricDefinition(
        "isthmus_content_taken_total",
        _COUNTER,
        _CONTENT,
        "taken",
        "Contents that were read for readers of the log.",
    ),
    MetricDefinition(
        "isthmus_content_gone_total",
        _COUNTER,
        _CONTENT,
        "gone",
        "Contents that were looked for, and are gone or damaged: who needs them stops with a gap.",
    ),
)
