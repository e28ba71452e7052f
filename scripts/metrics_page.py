"""Writes docs/metrics.md from the catalogue of metrics: `python scripts/metrics_page.py`."""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from relay.admin.metrics.page import metrics_page  # noqa: E402

if __name__ == "__main__":
    (TOP / "docs" / "metrics.md").write_text(metrics_page())
