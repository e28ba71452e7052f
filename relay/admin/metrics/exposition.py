"""Text exposition of a process's metrics: those of its report, and of the process itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from relay.admin.metrics.catalogue import CATALOGUE
from relay.admin.metrics.definition import MetricDefinition, MetricType, ReportSection
from relay.admin.metrics.old_names import old_text
from relay.admin.metrics.sections import Row, rows
from relay.delay_histogram import BOUNDS_S, DelaySnapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def metrics_text(report: Mapping[str, Any], *, with_old_names: bool) -> bytes:
    """Return a report in Prometheus's text format, of CONTENT_TYPE; `with_old_names` adds the
    series by their names in the former release.
    """
    text = generate_latest(ReportCollector(report))
    return text + old_text(report).encode() if with_old_names else text


class ReportCollector(Collector):
    """Collector over one report of a process."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """Return the families of the catalogue that have samples, then the process's."""
        sections = {section: list(rows(section, self._report)) for section in ReportSection}
        for definition in CATALOGUE:
            own_rows = sections[definition.section]
            if definition.type is MetricType.HISTOGRAM:
                family: Metric = _histogram(definition, own_rows)
            else:
                family = Metric(definition.family, definition.help, definition.type.value)
                family.samples = list(_samples(definition, own_rows))
            if family.samples:
                yield family
        yield from ProcessCollector(registry=None).collect()


def _histogram(metric: MetricDefinition, rows: Iterable[Row]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, figures in rows:
        delays: DelaySnapshot | None = figures.get(metric.key)
        if delays is not None:
            counts = accumulate(delays.counts)
            buckets = [*zip(_BOUNDS, counts, strict=True)]
            family.add_metric([*labels.values()], buckets, delays.sum_s)
    return family


_BOUNDS = (*map(floatToGoString, BOUNDS_S), "+Inf")


def _samples(metric: MetricDefinition, rows: Iterable[Row]) -> Iterator[Sample]:
    for labels, figures in rows:
        for own, value in _series(metric, figures):
            yield Sample(metric.name, {**labels, **own}, float(value))


def _series(
    metric: MetricDefinition, figures: Mapping[str, Any]
) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the labels of the metric's own, and the value, of each series of a row."""
    figure = figures.get(metric.key)
    if metric.type is MetricType.STATE_SET and figure is not None:
        yield from (({metric.name: state}, state == figure) for state in metric.states)
    elif metric.type is MetricType.INFO and figure is not None:
        names = (metric.key, *metric.info)
        yield {name: str(figures.get(name, "")) for name in names}, 1
    elif metric.by:
        yield from (({metric.by: key}, counted) for key, counted in (figure or {}).items())
    elif metric.type in _NUMBERS and (value := metric.read(figure)) is not None:
        yield {}, value


_NUMBERS = (MetricType.COUNTER, MetricType.GAUGE)
