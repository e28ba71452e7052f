"""How far a link has got, and what of it is to be kept, and when. Pure.

While a session lasts, its window says how far; what is kept is only as far as the node's own log
is certain of what stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchName, Place
from relay.batches.name_set import NameSet
from relay.links.forwarding import Forwarding
from relay.links.position import Beginning, LinkPosition, Sample, sampled
from relay.links.recent_acks import RecentAcks
from relay.links.settings import LinkSettings
from relay.links.window import LinkWindow


class ToKeep(NamedTuple):
    """A position, and what was acknowledged since the last one that was kept."""

    position: LinkPosition
    linked: tuple[BatchHeader, ...]


class LinkProgress:
    """One link's. `safe_place` as `LinkSender` has it."""

    def __init__(
        self,
        kept: LinkPosition | None,
        safe_place: Callable[[Place | None], Place | None],
        settings: LinkSettings,
    ) -> None:
        self._position = kept
        self._kept = kept
        self._safe_place = safe_place
        self._settings = settings
        self._window: LinkWindow | None = None
        self._unsaved = False
        self._linked: list[BatchHeader] = []
        """Acknowledged, and not yet handed out with a position."""
        self._saved_at = -1e9
        self._recent = RecentAcks(settings.lookback_s, kept.recent if kept else b"")

    @property
    def position(self) -> LinkPosition | None:
        """How far the receiver's log safely has what it should. None: no session ever."""
        if self._window is None or self._position is None:
            return self._position
        reached = self._window.place
        safe = self._safe_place(reached)
        if safe is None and reached is not None:
            return self._position  # the log is certain of nothing yet: what there was is better
        return replace(self._position, place=safe)

    @property
    def place(self) -> Place | None:
        """As `position`, but up to date, and to be believed only as long as the session lasts."""
        if self._window is not None:
            return self._window.place
        return self._position.place if self._position is not None else None

    @property
    def save_due(self) -> float | None:
        """When to save at the latest; None when there is nothing to."""
        return self._saved_at + self._settings.save_s if self._unsaved else None

    def has_recent(self, logged: NameSet) -> bool:
        """Whether a receiver's log with these names still has all that it had got lately."""
        return self._recent.are_in(logged)

    def session_begins(self, beginning: Beginning, window: LinkWindow) -> None:
        if not beginning.goes_on:
            self._recent.begin_anew()
        self._position = beginning.position
        self._window = window
        self._unsaved = True

    def session_ends(self) -> None:
        """What was reached and is not certain is forgotten with it."""
        self._position = self.position
        self._window = None

    def goes_on_with(self, forwarding: Forwarding) -> bool:
        """Whether the position holds good for this filter too; from now on it is the one that it
        is reached with.
        """
        if self._position is None:
            return True
        if self._position.seen.stranded_by(forwarding):
            return False
        self._position = replace(self._position, seen=self._position.seen.after(forwarding))
        self._unsaved = self._window is not None
        return True

    def passed_over_for(self, strangers: Iterable[str]) -> None:
        """A batch was passed over that is for these, which the mesh does not have (yet)."""
        if self._position is not None:
            seen = self._position.seen
            seen = replace(seen, sites=seen.sites.union(strangers))
            self._position = replace(self._position, seen=seen)

    def acknowledged(self, headers: Sequence[BatchHeader], now: float) -> None:
        """The receiver's log has these, from us."""
        self._linked += headers
        for header in headers:
            self._recent.note(header.name, now)

    def has(self, name: BatchName, now: float) -> None:
        """The receiver's log had this one already."""
        self._recent.note(name, now)

    def moved(self, now: float) -> None:
        """The window's place has moved."""
        assert self._window is not None
        assert self._position is not None
        settings = self._settings
        if now >= self._position.history[-1].at + settings.sample_s:
            place = self._safe_place(self._window.place)
            history = sampled(self._position.history, now, place, settings.lookback_s)
            self._position = replace(self._position, history=history)
        self._unsaved = True

    def back_to_certain(self) -> None:
        """The place reached may be past batches that were not read: back to the last sample."""
        if self._position is not None:
            place = self._position.history[-1].place
            self._back(replace(self._position, place=place))

    def back_to_start(self, now: float) -> None:
        """The log does not have the place: back to the log's start."""
        if self._position is not None:
            history = (Sample(now, None),)
            self._back(replace(self._position, place=None, history=history, reached=None))

    def _back(self, position: LinkPosition) -> None:
        if self._window is not None:
            self._window.place = position.place
            self._position = position
            self._unsaved = True

    def to_keep(self, now: float, at_once: bool = False) -> ToKeep | None:
        """What is to be kept now, if anything has changed and it is due (or wanted at once)."""
        due = self.save_due
        if due is None or (not at_once and now < due):
            return None
        position = self.position
        assert position is not None
        position = replace(position, recent=self._recent.encode())
        self._saved_at = now
        # Where the log is not certain yet of the place reached, it will be soon: once more then.
        self._unsaved = not _same_name(position.place, self.place)
        if position == self._kept and not self._linked:
            return None
        self._kept = position
        linked, self._linked = tuple(self._linked), []
        return ToKeep(position, linked)


def _same_name(one: Place | None, other: Place | None) -> bool:
    return (one and one.name) == (other and other.name)
