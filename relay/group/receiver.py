"""Receiver of all streams of a group: frames put together, in order, and NACKs. Pure.

Of each publisher the receiver follows the latest stream. Either a stream is followed: then its next
frame is appended once the batch before it was, or is in the log. Or it is lost: then nothing of it
is appended or asked for, until a frame comes whose batch, or the batch before, the log has. So each
way into the log brings a flow's batches in their order, and what the group lacks the links bring.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from relay.group.datagram import (
    ASKED_BYTES,
    MOST_ASKED,
    NO_FRAME,
    FramePiece,
    GroupPulse,
    GroupStream,
    Nack,
)
from relay.group.pieces import join
from relay.group.publisher import BadGroupFrame, decode_frame
from relay.group.settings import GroupSettings

_ALL_PIECES = 255
_MARKS = 32
_PARITY_WAIT = 0.4
"""Part of the longest wait before a NACK for which further parity is waited for."""
_LOOKS_AGAIN_S = 0.05
"""Time between two looks whether the log has what a lost stream's frames stand behind."""


class AppendFrame(NamedTuple):
    """Append the batch to the log after all earlier ones of the stream. Report `failed` if the
    batch cannot be appended, and append no later one of the same stream then.
    """

    stream: GroupStream
    number: int
    name: str
    batch: bytes


GroupAction: TypeAlias = AppendFrame | Nack


class GroupLog(Protocol):
    """Log of a site, as the receiver asks about it."""

    def accept(self, publisher: bytes, batch: bytes) -> str | None:
        """Return the name of a batch in a publisher's stream; None for bytes that are no batch as
        that site, its origin, has sent it.
        """
        ...

    def has(self, name: str) -> bool:
        """Return True if the log has the batch of a name."""
        ...


class _WholeFrame(NamedTuple):
    """Frame whose pieces have all come."""

    before: str
    """Name of the batch before; empty: there is none."""
    name: str
    batch: bytes


@dataclass(slots=True)
class _Frame:
    """Frame of which some pieces have come."""

    count: int
    size: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    whole: _WholeFrame | None = None
    """Content; None while pieces are missing."""
    nbytes: int = 0
    """Bytes that are held of it."""

    @property
    def has_last(self) -> bool:
        """True if the last piece has come, or parity, which follows."""
        return self.whole is not None or max(self.pieces) >= self.count - 1


@dataclass(slots=True)
class _Wanted:
    """Frame that is missing: when to ask for it, and how often nobody has answered."""

    due: float
    unanswered: int = 0
    is_asked_for: bool = False
    """True since this site, or another that it heard, has asked for the frame."""


@dataclass(slots=True)
class _Followed:
    """State of one publisher's latest stream."""

    stream: GroupStream
    next: int | None = None
    """Number of the next frame to append; None: the stream is lost."""
    last_name: str = ""
    """Name of the batch appended last."""
    least: int = 0
    """Number from which on the group may bring frames: earlier ones were in vain."""
    reached: int = -1
    """Number up to which all frames are there or wanted, from the next one on."""
    marks: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_MARKS))
    """Latest numbers of frames whose batches' names are known by pulses."""
    frames: dict[int, _Frame] = field(default_factory=dict)
    wanted: dict[int, _Wanted] = field(default_factory=dict)
    held_bytes: int = 0
    is_heard: bool = True
    """False since nobody answered, until something of the stream comes again."""

    def lacks(self, number: int) -> bool:
        """Return True while the frame of a number is not whole."""
        frame = self.frames.get(number)
        return frame is None or frame.whole is None

    @property
    def waits(self) -> bool:
        """True if the stream is lost, or its next frame not there: links may bring that as well."""
        return self.next is None or self.lacks(self.next)

    def missing(self, number: int) -> int:
        """Return the number of pieces that a frame lacks."""
        frame = self.frames.get(number)
        return _ALL_PIECES if frame is None else frame.count - len(frame.pieces)

    def hold(self, frame: _Frame, nbytes: int) -> None:
        """Note that so many bytes more are held of a frame; fewer, if negative."""
        frame.nbytes += nbytes
        self.held_bytes += nbytes

    def drop(self, number: int) -> None:
        """Forget a frame."""
        self.held_bytes -= self.frames.pop(number).nbytes
        self.wanted.pop(number, None)

    @property
    def top(self) -> int:
        """Highest number that is known; -1: none."""
        marked = self.marks[-1][0] if self.marks else -1
        return max(marked, max(self.frames, default=-1))

    @property
    def ended(self) -> int:
        """Highest number of a frame that is known to be sent with all its pieces; -1: none."""
        top = self.top
        frame = self.frames.get(top)
        is_under_way = frame is not None and not frame.has_last
        is_marked = self.marks and self.marks[-1][0] == top
        return top - 1 if is_under_way and not is_marked else top


class GroupReceiver:
    """Receiver of one site. `random` returns numbers in [0, 1). A replayer has `on_frame`, which is
    called with each frame that is whole, and the number of its pieces.
    """

    def __init__(
        self,
        log: GroupLog,
        settings: GroupSettings,
        random: Callable[[], float],
        on_frame: Callable[[GroupStream, int, bytes, int], None] | None = None,
    ) -> None:
        self._log = log
        self._on_frame = on_frame
        self._settings = settings
        self._random = random
        self._streams: dict[bytes, _Followed] = {}
        self._asks_at = math.inf
        """Time before which nothing is asked for."""
        self._asked_at_once = min(MOST_ASKED, settings.piece_bytes // ASKED_BYTES)
        """Most frames of a NACK, which is to be no larger than other datagrams."""
        self._look_at = 0.0
        self._has_log = True
        self.counters: Counter[str] = Counter()
        """Pieces and frames by what became of them."""

    @property
    def held_bytes(self) -> int:
        """Bytes of frames that are held, of all publishers."""
        return sum(followed.held_bytes for followed in self._streams.values())

    # -- events ------------------------------------------------------------------------------

    def on_piece(self, piece: FramePiece, now: float) -> list[AppendFrame]:
        """Take in a piece of a frame, from whomever."""
        followed = self._followed(piece.stream)
        if followed is None:
            return []
        number, first = piece.number, followed.next
        if first is not None and number < first:
            self.counters["late"] += 1
            return []
        frame = followed.frames.setdefault(number, _Frame(piece.pieces, piece.size))
        if (frame.count, frame.size) != (piece.pieces, piece.size):
            self.counters["malformed"] += 1
            return []
        if frame.whole or piece.piece in frame.pieces:
            self.counters["late"] += 1
            return []
        frame.pieces[piece.piece] = piece.data
        followed.hold(frame, len(piece.data))
        self.counters["pieces"] += 1
        if (wanted := followed.wanted.get(number)) is not None:
            wanted.unanswered = 0
            if piece.piece >= frame.count:
                self._await_parity(wanted, now)
        # Pieces come in the order of numbers, nearly: an earlier frame has lost some.
        self._reached(followed, number - 1, now)
        if len(frame.pieces) >= frame.count:
            return self._whole(followed, number, frame, now)
        if piece.piece >= frame.count - 1:
            self._reached(followed, number, now)
        self._keep_within_bounds(followed)
        return []

    def on_pulse(self, stream: GroupStream, pulse: GroupPulse, now: float) -> list[AppendFrame]:
        """Take in a sign of life of a stream, which says how far it has come."""
        followed = self._followed(stream)
        if followed is None:
            return []
        number = -1 if pulse.number == NO_FRAME else pulse.number
        if not followed.marks or followed.marks[-1][0] < number:
            followed.marks.append((number, pulse.name))
        actions = self._follow_again(followed, now, ()) if followed.waits else []
        self._reached(followed, number, now)
        return actions

    def on_nack(self, nack: Nack, now: float) -> None:
        """Keep quiet about what another site has just asked for."""
        followed = self._streams.get(nack.stream.publisher)
        if followed is None or followed.stream != nack.stream:
            return
        for number, missing in nack.asked:
            wanted = followed.wanted.get(number)
            if wanted is None or (self._on_frame is not None and not wanted.unanswered):
                continue  # a replayer asks once in any case, so that nobody waits for its answer
            if followed.missing(number) <= missing:
                wanted.is_asked_for = True
                self._ask(wanted, self._again_at(now))

    def failed(self, append: AppendFrame) -> None:
        """Note that a batch was not appended: the links have to bring it."""
        followed = self._streams.get(append.stream.publisher)
        if followed is not None and followed.stream == append.stream:
            self._lose(followed, append.number)

    def log_changed(self, *, is_there: bool) -> None:
        """Note that appends under way are in doubt: the log's connection is gone. Until another
        `is_there` nothing is appended or asked for.
        """
        self._has_log = is_there
        for followed in self._streams.values():
            self._lose(followed)

    def tick(self, now: float) -> list[GroupAction]:
        """Ask for what is missing, and look whether the links have brought what was lost."""
        actions: list[GroupAction] = []
        if now >= self._look_at:
            self._look_at = now + _LOOKS_AGAIN_S
            for followed in self._streams.values():
                if followed.waits:
                    actions += self._follow_again(followed, now, followed.frames)
        if now >= self._asks_at:
            for followed in self._streams.values():
                actions += self._nacks(followed, now)
            self._asks_at = min(
                (wanted.due for each in self._streams.values() for wanted in each.wanted.values()),
                default=math.inf,
            )
        return actions

    def wakeup(self) -> float | None:
        """Return the latest time at which `tick` is due, or None. Of what is no longer wanted the
        time may come all the same.
        """
        dues = [self._asks_at] if self._asks_at < math.inf else []
        streams = self._streams.values()
        if any(each.next is None or (each.waits and each.frames) for each in streams):
            dues.append(self._look_at)
        return min(dues, default=None)

    # -- streams -----------------------------------------------------------------------------

    def _followed(self, stream: GroupStream) -> _Followed | None:
        """Return the state of a stream; None if its publisher has begun another one since."""
        found = self._streams.get(stream.publisher)
        if found is None or found.stream.epoch < stream.epoch:
            found = self._streams[stream.publisher] = _Followed(stream)
        elif found.stream.epoch > stream.epoch:
            self.counters["of an older stream"] += 1
            return None
        found.is_heard = True
        return found

    def _follow_from(self, followed: _Followed, number: int, last_name: str, now: float) -> None:
        followed.next, followed.last_name, followed.reached = number, last_name, number - 1
        for earlier in [each for each in followed.frames if each < number]:
            followed.drop(earlier)
        for earlier in [each for each in followed.wanted if each < number]:
            del followed.wanted[earlier]
        for each in range(number, followed.ended + 1):
            self._reached(followed, each, now)

    def _may_follow_from(self, followed: _Followed, number: int, last_name: str) -> bool:
        """Return True if the group can bring what is lacking from a number on."""
        if number < followed.least or followed.top - number > self._settings.held_frames:
            return False
        frame = followed.frames.get(number)
        if frame is not None and frame.whole is not None:
            before = frame.whole.before
            if before != last_name and not self._has(before):
                return False
        lacking = sum(followed.lacks(each) for each in range(number, followed.top + 1))
        is_open = self._has_log and followed.is_heard
        return is_open and lacking <= self._settings.catch_up_frames

    def _follow_again(
        self, followed: _Followed, now: float, numbers: Iterable[int]
    ) -> list[AppendFrame]:
        """Follow a stream that is lost, or lacks its next frame, from behind the last that the log
        has of it, if that can be; given the numbers of frames to look at.
        """
        places = sorted(self._places(followed, numbers), reverse=True)
        for first, last_name in places:
            if followed.next is not None and first <= followed.next:
                break
            if self._may_follow_from(followed, first, last_name):
                self._follow_from(followed, first, last_name, now)
                return self._advance(followed)
        return []

    def _places(self, followed: _Followed, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Yield places behind which the log stands: numbers of the next frames, and the names of
        the batches before. The last one by marks, and the last one by the frames of some numbers.
        """
        for number, name in reversed(followed.marks):
            if self._has(name):
                yield number + 1, name
                break
        for number in sorted(numbers, reverse=True):
            whole = followed.frames[number].whole
            if whole is None:
                continue
            if self._has(whole.name):
                yield number + 1, whole.name
                break
            if self._has(whole.before):
                yield number, whole.before
                break

    def _has(self, name: str) -> bool:
        """Return True if the log has a batch, or what stands before the first of all."""
        return not name or self._log.has(name)

    def _lose(self, followed: _Followed, at: int = -1) -> None:
        """Follow a stream no more, until the links have brought what is missing before the frames
        that are held; the frame of the number `at` in any case.
        """
        if followed.next is not None:
            self.counters["lost"] += 1
            # What was appended is not asked for again, even if no mark tells of it.
            followed.least = max(followed.least, followed.next)
        followed.next = None
        followed.least = max(followed.least, at + 1)
        followed.wanted.clear()

    def _keep_within_bounds(self, followed: _Followed) -> None:
        """Lose a stream of which too much is held, and drop its oldest frames."""
        settings = self._settings
        others = self.held_bytes - followed.held_bytes
        most_bytes = min(settings.held_bytes, settings.held_in_all - others)
        while followed.frames and (
            len(followed.frames) > settings.held_frames or followed.held_bytes > most_bytes
        ):
            self._lose(followed)
            followed.drop(min(followed.frames))

    # -- frames ------------------------------------------------------------------------------

    def _whole(
        self, followed: _Followed, number: int, frame: _Frame, now: float
    ) -> list[AppendFrame]:
        """Take a frame whose pieces are all there."""
        name = None
        try:
            content = join(frame.pieces, frame.count, frame.size)
            before, batch = decode_frame(content)
            name = self._log.accept(followed.stream.publisher, batch)
        except BadGroupFrame:
            pass
        if name is None:
            # A member of the group has sent it; no copy is any better.
            self.counters["refused"] += 1
            followed.drop(number)
            self._lose(followed, number)
            return []
        if self._on_frame is not None:
            self._on_frame(followed.stream, number, content, frame.count)
        self.counters["repaired"] += max(frame.pieces) >= frame.count
        frame.pieces.clear()
        frame.whole = _WholeFrame(before, name, batch)
        followed.hold(frame, frame.size - frame.nbytes)
        followed.wanted.pop(number, None)
        self.counters["frames"] += 1
        if followed.waits:
            # The others are looked at by `tick`: each time all of them would be too many.
            actions = self._follow_again(followed, now, [number])
        else:
            actions = self._advance(followed)
        self._keep_within_bounds(followed)
        return actions

    def _advance(self, followed: _Followed) -> list[AppendFrame]:
        """Append the next frames, as far as they are there and stand behind what was appended."""
        actions: list[AppendFrame] = []
        while followed.next is not None and not followed.lacks(followed.next):
            number = followed.next
            whole = followed.frames[number].whole
            assert whole is not None
            if whole.before != followed.last_name and not self._log.has(whole.before):
                # A batch that is too big for the group stands between, and comes by the links.
                self._lose(followed)
                break
            followed.next, followed.last_name = number + 1, whole.name
            followed.drop(number)
            actions.append(AppendFrame(followed.stream, number, whole.name, whole.batch))
        return actions

    # -- NACKs -------------------------------------------------------------------------------

    def _reached(self, followed: _Followed, number: int, now: float) -> None:
        """Note that the stream has come to a number: what is missing up to there is wanted."""
        if followed.next is None or number <= followed.reached:
            return
        first = max(followed.reached + 1, followed.next)
        if number - first >= self._settings.catch_up_frames:
            # This site has heard nothing for a while.
            self._lose(followed)
            return
        for each in range(first, number + 1):
            if followed.lacks(each) and each not in followed.wanted:
                wanted = followed.wanted[each] = _Wanted(now)
                self._ask(wanted, now + (0.2 + 0.8 * self._random()) * self._settings.nack_wait_s)
        followed.reached = max(followed.reached, number)

    def _ask(self, wanted: _Wanted, due: float) -> None:
        """Ask for a frame at a time."""
        wanted.due = due
        self._asks_at = min(self._asks_at, due)

    def _await_parity(self, wanted: _Wanted, now: float) -> None:
        """Choose when to ask for what a parity piece has left missing."""
        nack_wait_s = self._settings.nack_wait_s
        if wanted.is_asked_for:
            # An answer: what it leaves missing was lost on the way, and need not wait for one.
            self._ask(wanted, now + (1 + self._random()) * nack_wait_s)
        else:
            # Ahead of any NACK: more of it may be on its way.
            self._ask(wanted, max(wanted.due, now + _PARITY_WAIT * nack_wait_s))

    def _again_at(self, now: float, unanswered: int = 0) -> float:
        """Return when to ask again: later each time, since an answer may have a long way, and the
        last rank's comes when others have had their time.
        """
        return now + (4 + self._random()) * self._settings.nack_wait_s * 2.0**unanswered

    def _nacks(self, followed: _Followed, now: float) -> list[Nack]:
        """Ask for the frames of a stream whose time has come; lose it where nobody answers."""
        due = sorted(number for number, wanted in followed.wanted.items() if wanted.due <= now)
        for number in due:
            wanted = followed.wanted[number]
            if wanted.unanswered >= self._settings.unanswered:
                # A site that hears nothing would ask for ever, and be answered with repairs.
                self._lose(followed, number)
                followed.is_heard = False
                return []
            self._ask(wanted, self._again_at(now, wanted.unanswered))
            wanted.unanswered += 1
            wanted.is_asked_for = True
        asked = tuple((number, followed.missing(number)) for number in due)
        self.counters["nacks"] += len(due) > 0
        return [
            Nack(followed.stream, asked[start : start + self._asked_at_once])
            for start in range(0, len(asked), self._asked_at_once)
        ]
