"""Promises of a site on three broker nodes, each of which is disturbed under load; outages are
measured by `python -m tests.cluster_site.measure`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from tests.cluster_site.disturbances import DISTURBANCES
from tests.cluster_site.trial import run_trial

pytestmark = pytest.mark.long
PER_SECOND = 200


@pytest.mark.parametrize("name", DISTURBANCES)
async def test_nothing_is_lost_or_repeated_or_late_whatever_befalls_each_node(
    tmp_path: Path, rabbitmq: RabbitMQInstallation, name: str
) -> None:
    outcome = await run_trial(tmp_path, rabbitmq, name, per_second=PER_SECOND)
    assert outcome.confirmed > 0
    assert not outcome.late
