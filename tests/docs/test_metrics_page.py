"""docs/metrics.md is that of the catalogues of metrics."""

from __future__ import annotations

from scripts.metrics_page import PAGE, page


def test_the_page_of_metrics_is_current() -> None:
    assert PAGE.read_text() == page(), "run: .venv/bin/python scripts/metrics_page.py"
