"""What a long audit is doing, on a terminal: the step, and how much of it Spark has done."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TextIO

_EVERY_S = 0.5


@dataclass(slots=True)
class Progress:
    """Call with the name of each step. As a context manager it keeps the last line up to date;
    says nothing where nobody looks (`stream` is no terminal).
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    spark: Any = None
    """Once there is one."""
    _step: str = field(default="", init=False)
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _shown: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self, step: str) -> None:
        with self._shown:
            if self._thread is not None and self._step:
                self._line(f"{self._step}: done\n")
            self._step = step
            self._line(f"{step} ...")

    def __enter__(self) -> Progress:
        if self.stream.isatty():
            self._thread = threading.Thread(target=self._keep_up, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._line("")

    def _keep_up(self) -> None:
        while not self._over.wait(_EVERY_S):
            parts = tasks_of(self.spark)
            with self._shown:
                if parts:
                    self._line(f"{self._step} ... {parts[0]} of {parts[1]} parts")

    def _line(self, text: str) -> None:
        if self._thread is not None:
            self.stream.write(f"\r\x1b[K{text}")
            self.stream.flush()


def tasks_of(spark: Any) -> tuple[int, int] | None:
    """(done, all) of the stages that run; None if none does, or Spark is on its way out."""
    if spark is None:
        return None
    with contextlib.suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
    return None
