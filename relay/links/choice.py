"""Which of the batches that a link's sender reads are to be sent, and why not the others."""

from __future__ import annotations

from collections.abc import Callable

from relay.batches.batch import BatchHeader, Series
from relay.batches.name_set import NameSet
from relay.links.forwarding import Forwarding, Verdict
from relay.links.progress import LinkProgress

_MOST_NOT_WANTED = 4096


class BatchChoice:
    """One link's. `is_void` as `LinkSender` has it; `progress` notes what was passed over."""

    def __init__(
        self,
        forwarding: Forwarding,
        is_void: Callable[[BatchHeader], bool],
        progress: LinkProgress,
    ) -> None:
        self.forwarding = forwarding
        self.not_wanted: set[Series] = set()
        """Of those that come straight from their origin: not to be sent, for their destinations.
        What is found here needs no further look: of a hub's batches, nearly all are others'."""
        self._is_void = is_void
        self._progress = progress

    def change(self, forwarding: Forwarding) -> None:
        """Choose by this one from now on."""
        self.forwarding = forwarding
        self.not_wanted.clear()

    def begin_session(self) -> None:
        """Whom they are for is noted with the position of each session anew."""
        self.not_wanted.clear()

    def why_not(self, header: BatchHeader, logged: NameSet, now: float) -> str | None:
        """Why the batch is not sent to a receiver whose log has these names; None: it is."""
        verdict = self.forwarding.decide(header)
        if verdict is not Verdict.SEND:
            if verdict is Verdict.NOT_WANTED:
                self._pass_over(header)
            return verdict.value
        if header.name in logged:
            self._progress.has(header.name, now)
            return "the receiver has it"
        if self._is_void(header):
            return "void"
        return None

    def _pass_over(self, header: BatchHeader) -> None:
        series = header.name.series
        # Its origin may know a newer file than we do, and the batch be due once we know it too.
        strangers = set(series.destinations).difference(self.forwarding.sites)
        if strangers:
            self._progress.passed_over_for(strangers)
        if len(header.path) == 1:
            if len(self.not_wanted) >= _MOST_NOT_WANTED:
                self.not_wanted.clear()
            self.not_wanted.add(series)
