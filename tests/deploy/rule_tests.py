"""Runs of `promtool test rules`: which alerts fire over given series, and when."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = Path(__file__).parents[2]
RULES = TOP / "deploy" / "prometheus" / "isthmus.rules.yml"


def rules() -> list[dict[str, Any]]:
    """Return the alerts of the file, in order."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def check_firing(
    folder: Path,
    series: Mapping[str, str],
    firing: Mapping[str, Collection[str]],
    interval: str = "30s",
) -> None:
    """Check that over the series, with a value each interval, exactly these alerts fire at each
    time.
    """
    tests = folder / "rules_test.yml"
    tests.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": interval,
                "tests": [
                    {
                        "interval": interval,
                        "input_series": [
                            {"series": name, "values": values} for name, values in series.items()
                        ],
                        "promql_expr_test": [_at(time, names) for time, names in firing.items()],
                    }
                ],
            }
        )
    )
    if (promtool := shutil.which("promtool")) is None:
        pytest.fail("promtool is missing: make test-tools")
    ended = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def _at(time: str, names: Iterable[str]) -> dict[str, Any]:
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]
    return {
        "expr": 'count by (alertname) (group by (alertname) (ALERTS{alertstate="firing"}))',
        "eval_time": time,
        "exp_samples": samples,
    }
