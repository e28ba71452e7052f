"""Private brokers of `isthmus up` that are applied once they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.brokers.apply_report import Item, ItemOutcome, SiteReport
from isthmus.up import mesh_children
from isthmus.up.mesh_children import SiteBrokers
from tests.federation.meshes import TRIANGLE, mesh_of

OPENING = "NOT_FOUND - home node of durable queue 'isthmus.m.log' is down or inaccessible"


@pytest.mark.parametrize(
    ("details", "applied", "warned"),
    [
        ([""], 1, False),
        ([OPENING, OPENING, ""], 3, False),
        (["access refused", ""], 1, True),
        ([OPENING] * 99, 20, True),
    ],
    ids=["at once", "once its log is open", "refused", "never"],
)
async def test_a_broker_that_still_opens_its_log_is_applied_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    details: list[str],
    applied: int,
    warned: bool,
) -> None:
    said = iter(details)
    times = 0

    async def apply(*_: object) -> list[SiteReport]:
        nonlocal times
        times += 1
        detail = next(said)
        outcome = ItemOutcome.FAILED if detail else ItemOutcome.THERE
        return [SiteReport("paris", (Item("queue", "isthmus.m.log", outcome, detail),))]

    monkeypatch.setattr(mesh_children, "apply_sites", apply)
    monkeypatch.setattr(mesh_children, "_LOOK_EVERY_S", 0.0)
    await SiteBrokers("paris", mesh_of(TRIANGLE), tmp_path).apply()
    assert times == applied
    assert ("not as the mesh file says" in caplog.text) == warned
