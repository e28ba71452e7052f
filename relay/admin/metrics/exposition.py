"""Text exposition of a process's metrics: those of its report, and of the process itself.

The report's are written here and not by prometheus-client, which took five times as long for a hub
with 300 links: each label of each series goes through regular expressions there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest

from relay.admin.metrics.catalogue import CATALOGUE
from relay.admin.metrics.definition import MetricDefinition, MetricType, ReportSection
from relay.admin.metrics.old_names import old_text
from relay.admin.metrics.sections import rows
from relay.delay_histogram import BOUNDS_S, DelaySnapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_TEXT_TYPES = {MetricType.STATE_SET: MetricType.GAUGE, MetricType.INFO: MetricType.GAUGE}
"""Types that this format does not know, and what stands for them."""

_LabelledRow = tuple[str, Mapping[str, Any]]
"""Labels of a section's row as text, and its figures."""


def metrics_text(report: Mapping[str, Any], *, with_old_names: bool) -> bytes:
    """Return a report in Prometheus's text format, of CONTENT_TYPE; `with_old_names` adds the
    series by their names in the former release.
    """
    sections = {
        section: [(_labels(labels), figures) for labels, figures in rows(section, report)]
        for section in ReportSection
    }
    lines: list[str] = []
    for metric in CATALOGUE:
        write = _histogram if metric.type is MetricType.HISTOGRAM else _series
        if own := list(write(metric, sections[metric.section])):
            type = _TEXT_TYPES.get(metric.type, metric.type)
            lines.append(f"# HELP {metric.name} {metric.help}")
            lines.append(f"# TYPE {metric.name} {type.value}")
            lines += own
    text = "".join(f"{line}\n" for line in lines)
    if with_old_names:
        text += old_text(report)
    return text.encode() + generate_latest(ProcessCollector(registry=None))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _histogram(metric: MetricDefinition, rows: Iterable[_LabelledRow]) -> Iterator[str]:
    name = metric.name
    for labels, figures in rows:
        delays: DelaySnapshot | None = figures.get(metric.key)
        if delays is None:
            continue
        for bound, count in zip(_BOUNDS, accumulate(delays.counts), strict=True):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {count}'
        yield f"{name}_count{{{labels}}} {sum(delays.counts)}"
        yield f"{name}_sum{{{labels}}} {delays.sum_s}"


_BOUNDS = (*map(str, BOUNDS_S), "+Inf")


def _series(metric: MetricDefinition, rows: Iterable[_LabelledRow]) -> Iterator[str]:
    name, key = metric.name, metric.key
    for labels, figures in rows:
        figure = figures.get(key)
        before = f"{labels}," if labels else ""
        if metric.type is MetricType.STATE_SET:
            if figure is not None:
                for state in metric.states:
                    yield f'{name}{{{before}{name}="{state}"}} {int(state == figure)}'
        elif metric.type is MetricType.INFO:
            if figure is not None:
                own = {of: str(figures.get(of, "")) for of in (key, *metric.info)}
                yield f"{name}{{{before}{_labels(own)}}} 1"
        elif metric.by:
            for of, counted in (figure or {}).items():
                yield f"{name}{{{before}{_labels({metric.by: of})}}} {float(counted)}"
        elif (value := metric.read(figure)) is not None:
            yield f"{name}{f'{{{labels}}}' if labels else ''} {float(value)}"
