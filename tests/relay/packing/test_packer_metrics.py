"""Times of the stages of a packer's beginning."""

from __future__ import annotations

from relay.packing.packer_metrics import StageTimes


def test_each_stage_is_told_with_its_own_time_and_all_of_them_together() -> None:
    times = iter([10.0, 10.25, 13.5])
    stages = StageTimes(lambda: next(times))
    stages.end("connection")
    stages.end("lock")
    assert str(stages) == "3.5 s (connection 0.2 s, lock 3.2 s)"
