"""Catalogue of metrics: names by convention, each once."""

from __future__ import annotations

from collections import Counter

import pytest

from relay.admin.metrics.catalogue import CATALOGUE
from relay.admin.metrics.definition import MetricDefinition, MetricType, ReportSection


def test_each_metric_has_one_definition_and_each_former_name_one_heir() -> None:
    names = Counter(metric.name for metric in CATALOGUE)
    former = Counter(metric.old for metric in CATALOGUE if metric.old)
    assert {name for name, count in (names + former).items() if count > 1} == set()


def test_each_figure_of_a_section_has_one_metric() -> None:
    figures = Counter((metric.section, metric.key) for metric in CATALOGUE)
    assert {figure for figure, count in figures.items() if count > 1} == set()


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("isthmus_site_delivered", MetricType.COUNTER),
        ("isthmus_site_waiting_total", MetricType.GAUGE),
        ("isthmus_build", MetricType.INFO),
        ("isthmus_build_info", MetricType.GAUGE),
    ],
)
def test_a_name_that_its_type_does_not_allow_is_refused(name: str, type: MetricType) -> None:
    with pytest.raises(ValueError, match="a metric ends in"):
        MetricDefinition(name, type, ReportSection.SITE, "key", "Help.")


def test_help_is_a_sentence() -> None:
    assert [
        one.name for one in CATALOGUE if not (one.help[0].isalnum() and one.help[-1] == ".")
    ] == []
