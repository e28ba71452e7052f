"""Progress of a link: how far it has got, which part of that is saved, and when. Pure.

During a session its window says how far the link is; the saved position never passes what the
node's own log is certain of.
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
"""Limit of intervals in either half: about 16 KiB. Beyond, `are_in` returns False."""


class RecentAcks:
    """Names that the receiver's log is known to have got lately. A receiver with a new run is first
    checked for them.

    Without these names, every restarted receiver would be offered again all that was acknowledged
    in the minutes before: by a hub with three hundred branches, the last minutes of its log three
    hundred times. A WELCOME lists the names in the receiver's log; as long as none of ours is
    missing there, nothing has to be sent again.

    Times are seconds of the driver's clock. Two halves, each `keep_s` long: a name is forgotten
    `keep_s` to twice as long after being noted. `kept` is the result of `encode`; without it (a
    position of an older node) nothing is known, and `are_in` returns False until all unknown names
    are old enough.
    """

    def __init__(self, keep_s: float, kept: bytes = b"") -> None:
        self._keep_s = keep_s
        self._since: float | None = None
        self._newer = NameSet()
        self._older = NameSet()
        self._whole = True
        """True if the newer half is complete; otherwise the older half does not suffice either."""
        self._older_whole = False
        self._encoded: bytes | None = None
        if kept:
            try:
                self._older = NameSet.decode(kept)
                self._older_whole = True
            except BadNameSet:
                self._older = NameSet()

    def note(self, name: BatchName, now: float) -> None:
        """Note that the receiver's log has this batch."""
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
        """Forget all names; the link looks anew for what the receiver lacks."""
        self._older, self._newer = NameSet(), NameSet()
        self._older_whole = self._whole = True
        self._since = None
        self._encoded = None

    def are_in(self, logged: NameSet) -> bool:
        """Return True if the receiver's log still has all of the names."""
        return (
            self._whole
            and self._older_whole
            and self._newer.is_within(logged)
            and self._older.is_within(logged)
        )

    def encode(self) -> bytes:
        """Return the names for a saved position; empty if they are not fully known."""
        if not (self._whole and self._older_whole):
            return b""
        if self._encoded is None:
            names = self._older.copy()
            names.merge(self._newer)
            self._encoded = names.encode()
        return self._encoded


class PendingSave(NamedTuple):
    """Position to save, and the batches acknowledged since the last save."""

    position: LinkPosition
    linked: tuple[BatchHeader, ...]


class LinkProgress:
    """Progress of one link. `safe_place` is `SenderParts.safe_place`."""

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
        """Batches acknowledged and not yet handed out with a position."""
        self._saved_at = -1e9
        self._recent = RecentAcks(settings.lookback_s, kept.recent if kept else b"")

    @property
    def position(self) -> LinkPosition | None:
        """Position up to which the receiver safely has all it should; None before any session."""
        if self._window is None or self._position is None:
            return self._position
        reached = self._window.place
        safe = self._safe_place(reached)
        if safe is None and reached is not None:
            return self._position  # the log is certain of nothing yet: the former is better
        return replace(self._position, place=safe)

    @property
    def place(self) -> Place | None:
        """Place of `position`, but up to date, and valid only as long as the session lasts."""
        if self._window is not None:
            return self._window.place
        return self._position.place if self._position is not None else None

    @property
    def save_due(self) -> float | None:
        """Latest time of the next save, or None if nothing changed."""
        return self._saved_at + self._settings.save_s if self._unsaved else None

    def has_recent(self, logged: NameSet) -> bool:
        """Return True if a receiver's log with these names still has all that it had got lately."""
        return self._recent.are_in(logged)

    def session_begins(self, beginning: Beginning, window: LinkWindow) -> None:
        if not beginning.goes_on:
            self._recent.begin_anew()
        self._position = beginning.position
        self._window = window
        self._unsaved = True

    def session_ends(self) -> None:
        """Forget any place reached of which the log is not certain."""
        self._position = self.position
        self._window = None

    def goes_on_with(self, forwarding: Forwarding) -> bool:
        """Return True if the position stays valid under a new filter, and take the filter over."""
        if self._position is None:
            return True
        if self._position.seen.stranded_by(forwarding):
            return False
        self._position = replace(self._position, seen=self._position.seen.after(forwarding))
        self._unsaved = self._window is not None
        return True

    def passed_over_for(self, strangers: Iterable[str]) -> None:
        """Note cluster IDs not (yet) in the mesh for which a batch was passed over."""
        if self._position is not None:
            seen = self._position.seen
            seen = replace(seen, sites=seen.sites.union(strangers))
            self._position = replace(self._position, seen=seen)

    def acknowledged(self, headers: Sequence[BatchHeader], now: float) -> None:
        """Note batches that the receiver's log has got from us."""
        self._linked += headers
        for header in headers:
            self._recent.note(header.name, now)

    def has(self, name: BatchName, now: float) -> None:
        """Note a batch that the receiver's log had already."""
        self._recent.note(name, now)

    def moved(self, now: float) -> None:
        """Note that the window's place has moved."""
        assert self._window is not None
        assert self._position is not None
        settings = self._settings
        if now >= self._position.history[-1].at + settings.sample_s:
            place = self._safe_place(self._window.place)
            history = sampled(self._position.history, now, place, settings.lookback_s)
            self._position = replace(self._position, history=history)
        self._unsaved = True

    def back_to_certain(self) -> None:
        """Go back to the last sample: the place reached may be past unread batches."""
        if self._position is not None:
            place = self._position.history[-1].place
            self._back(replace(self._position, place=place))

    def back_to_start(self, now: float) -> None:
        """Go back to the log's start, since the log does not have the place."""
        if self._position is not None:
            history = (Sample(now, None),)
            self._back(replace(self._position, place=None, history=history, reached=None))

    def _back(self, position: LinkPosition) -> None:
        if self._window is not None:
            self._window.place = position.place
            self._position = position
            self._unsaved = True

    def pending_save(self, now: float, at_once: bool = False) -> PendingSave | None:
        """Return the position to save, or None if nothing changed or no save is due."""
        due = self.save_due
        if due is None or (not at_once and now < due):
            return None
        position = self.position
        assert position is not None
        position = replace(position, recent=self._recent.encode())
        self._saved_at = now
        # The log is not certain yet of the place reached, but will be soon: save once more then.
        self._unsaved = not _same_name(position.place, self.place)
        if position == self._kept and not self._linked:
            return None
        self._kept = position
        linked, self._linked = tuple(self._linked), []
        return PendingSave(position, linked)


def _same_name(one: Place | None, other: Place | None) -> bool:
    return (one and one.name) == (other and other.name)
