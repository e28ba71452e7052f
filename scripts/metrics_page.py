"""Writes docs/metrics.md from the catalogues of metrics: `python scripts/metrics_page.py`."""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from relay.admin.metrics.page import node_metrics  # noqa: E402
from spark_audit.report.textfile import AUDIT_METRICS  # noqa: E402

PAGE = TOP / "docs" / "metrics.md"
_AUDIT = """## The audit

`isthmus audit --textfile PATH` writes these for node exporter
([the audit](audit.md#every-night)), by the label `mesh`. The states of the verdict are *proven*,
*findings* and *not proven*.

| metric | type | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the page's text."""
    rows = [f"| `{one.name}` | {one.type} | {one.help} |" for one in AUDIT_METRICS]
    return f"{node_metrics()}\n{_AUDIT}{chr(10).join(rows)}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
