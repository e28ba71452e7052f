"""Time that each stage of a beginning took, for the line that tells operators of an outage."""

from __future__ import annotations

from collections.abc import Callable


class StageTimes:
    """Stages in order, each from the end of the one before. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._stages: list[str] = []

    def end(self, stage: str) -> None:
        """Note that this stage ended now."""
        now = self._clock()
        self._stages.append(f"{stage} {now - self._last:.1f} s")
        self._last = now

    def __str__(self) -> str:
        return f"{self._last - self._began:.1f} s ({', '.join(self._stages)})"
