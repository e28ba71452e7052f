"""How far a link has got, and what of it is to be kept, and when. Pure.

While a session lasts, its window says how far; what is kept is only as far as the node's own log
is certain of what stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchName, Place
from relay.batches.name_set import BadNameSet, NameSet
from relay.links.forwarding import Forwarding
from relay.links.position import Beginning, LinkPosition, Sample, sampled
from relay.links.sender.session import LinkWindow
from relay.links.settings import LinkSettings

MOST_INTERVALS = 512
"""Of names, in either half: about 16 KiB where a position is kept. With more the answer is no."""


class RecentAcks:
    """One link's. Times in seconds of the driver's clock.

    Two halves, each `keep_s` long: a name is forgotten `keep_s` to twice as long after it was
    noted. `kept` is what `encode` gave; without it (an older node's position) nothing is
    known, and `are_in` says no until all that is not known is that old.
    """

    def __init__(self, keep_s: float, kept: bytes = b"") -> None:
        self._keep_s = keep_s
        self._since: float | None = None
        self._newer = NameSet()
        self._older = NameSet()
        self._whole = True
        """Whether the newer half has all that it should; else the older one's are not enough."""
        self._older_whole = False
        self._encoded: bytes | None = None
        if kept:
            try:
                self._older = NameSet.decode(kept)
                self._older_whole = True
            except BadNameSet:
                self._older = NameSet()

    def note(self, name: BatchName, now: float) -> None:
        """The receiver's log has this batch."""
        if self._since is None:
            self._since = now
        elif now >= self._since + self._keep_s:
            self._older, self._older_whole = self._newer, self._whole
            self._newer, self._whole = NameSet(), True
            self._since = now
        if self._whole and self._newer.add(name):
            self._encoded = None
            if self._newer.interval_count() > MOST_INTERVALS:
                self._newer, self._whole = NameSet(), False

    def begin_anew(self) -> None:
        """The link looks again for what the receiver lacks: what it has is noted again."""
        self._older, self._newer = NameSet(), NameSet()
        self._older_whole = self._whole = True
        self._since = None
        self._encoded = None

    def are_in(self, logged: NameSet) -> bool:
        """Whether the receiver's log still has all of them."""
        return (
            self._whole
            and self._older_whole
            and self._newer.is_within(logged)
            and self._older.is_within(logged)
        )

    def encode(self) -> bytes:
        """For a position that is kept; empty if it is not known."""
        if not (self._whole and self._older_whole):
            return b""
        if self._encoded is None:
            names = self._older.copy()
            names.merge(self._newer)
            self._encoded = names.encode()
        return self._encoded


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
