"""Incarnations of a packer: which of their batches count, and which are void wherever they are met.

A packer that was paused and comes back, or whose last bytes still lay in a socket when its
successor began, must do no harm. So every start of a packer draws a random ID, its incarnation, and
every header declares where the incarnations before ended::

    I1/49  I1/50  mark(I2)  I1/51  statement(I2: I1 ended at 50)  I2/2 ...
                            void

- The *mark* (sequence 0 of the incarnation) is appended first and declares nothing; the log is then
  read up to the mark, and batches of I1 before it count, for good.
- The *statement* (sequence 1) declares that end, before the first message of I2 is even asked for.
  It binds every successor: until it stands in the log, the readers of this node wait at I1/51
  (`is_undecided`), since a successor that never saw I2's decision would decide anew.

A mark alone decides nothing: a mark that a packer without its lock writes late harms nobody. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relay.batches.batch import BatchHeader, BatchKind, Predecessor

MARK_SEQUENCE = 0
STATEMENT_SEQUENCE = 1
INCARNATION_BYTES = 8
MAX_PREDECESSORS = 8
MAX_REMEMBERED = 4096
"""Ended incarnations remembered for each origin; a packer that crashes every two seconds makes as
many in two hours, and bytes of an incarnation so long gone lie in no socket any more."""


class VoidTable:
    """Ends of ended incarnations, learned from every header that is met.

    A node has one table, shared by its links and its deliverer. Where two headers differ, the
    larger end is right: the smaller was read from a log that had lost its tail. `known` are
    (origin, predecessor) pairs from the node's state, oldest first.
    """

    def __init__(self, known: Iterable[tuple[str, Predecessor]] = ()) -> None:
        self._ends: dict[str, dict[bytes, int]] = {}
        self._heard: dict[str, tuple[bytes, tuple[Predecessor, ...]]] = {}
        self._deciding: tuple[str, bytes, Mapping[bytes, int]] | None = None
        self._decided: set[Predecessor] = set()
        for origin, predecessor in known:
            self.end(origin, (predecessor,))

    def learn(self, header: BatchHeader) -> bool:
        """Learn the header's predecessors; return True if there is news to be written down, which
        includes this site's own decision once it stands in the log. A void batch teaches nothing.
        """
        predecessors = header.predecessors
        if not predecessors:
            return False
        series = header.name.series
        heard = (series.incarnation, predecessors)
        if self._heard.get(series.origin) == heard:
            return False
        if self.is_void(header):
            return False
        self._heard[series.origin] = heard
        was_decided = not self._decided.isdisjoint(predecessors)
        self._decided.difference_update(predecessors)
        return self.end(series.origin, predecessors) or was_decided

    def end(self, origin: str, predecessors: tuple[Predecessor, ...]) -> bool:
        """Note ends of incarnations; return True if any was news."""
        ends = self._ends.setdefault(origin, {})
        news = False
        for incarnation, end in predecessors:
            known = ends.get(incarnation)
            if known is None or end > known:
                ends[incarnation] = end
                news = True
        while len(ends) > MAX_REMEMBERED:
            del ends[next(iter(ends))]
        return news

    def ends(self, origin: str, reported: Iterable[Predecessor]) -> list[Predecessor]:
        """Ends of these incarnations by all that is known, which may be further than reported."""
        known = self._ends.get(origin, {})
        return [
            Predecessor(incarnation, known.get(incarnation, end)) for incarnation, end in reported
        ]

    def ended(self, origin: str) -> tuple[Predecessor, ...]:
        """All of the origin's incarnations that are known to have ended."""
        return tuple(Predecessor(*end) for end in self._ends.get(origin, {}).items())

    def end_of(self, origin: str, incarnation: bytes) -> int | None:
        """Last incarnation sequence that counts, or None while the incarnation has not ended."""
        ends = self._ends.get(origin)
        return None if ends is None else ends.get(incarnation)

    def is_void(self, header: BatchHeader) -> bool:
        """True if the batch counts nowhere: its incarnation had ended before the batch came into a
        log.
        """
        series = header.name.series
        ends = self._ends.get(series.origin)
        if ends is None:
            return False
        end = ends.get(series.incarnation)
        return end is not None and header.incarnation_sequence > end

    # From this node's packer to the readers beside it

    def deciding(self, origin: str, incarnation: bytes, counted: Mapping[bytes, int]) -> None:
        """Note that this site's packer has begun `incarnation` and is about to append its mark.

        `counted`: the sequences up to which earlier incarnations certainly count.
        """
        self._deciding = (origin, incarnation, dict(counted))

    def decided(self, predecessors: tuple[Predecessor, ...]) -> None:
        """Note that the statement stands in the log."""
        if self._deciding is None:
            raise RuntimeError("decided without deciding: the packer's order of steps is wrong")
        origin = self._deciding[0]
        self._deciding = None
        self.end(origin, predecessors)
        self._decided |= set(predecessors)

    def is_undecided(self, header: BatchHeader) -> bool:
        """True if a reader of the own log must wait for this site's packer before this batch."""
        if self._deciding is None:
            return False
        origin, incarnation, counted = self._deciding
        series = header.name.series
        if series.origin != origin or series.incarnation == incarnation:
            return False
        return header.incarnation_sequence > counted.get(series.incarnation, -1)


class OwnHistory:
    """The own site's incarnations, as its log shows them in order up to a new incarnation's mark.

    `last` is the last incarnation as known apart from the log: its batches up to that sequence were
    confirmed once, and a log that has lost its tail does not make them void elsewhere. `read_after`
    is the sequence of `last` before the place where reading began. `ended` are ends stated before:
    since then retention may have taken the statement, but not the late batches of such an
    incarnation.
    """

    def __init__(
        self,
        origin: str,
        last: Predecessor | None = None,
        read_after: int = -1,
        ended: tuple[Predecessor, ...] = (),
    ) -> None:
        self._origin = origin
        self._last = last
        self._read_after = read_after
        self._seen: dict[bytes, int] = {}  # in the order of first appearance
        self._stated: set[bytes] = set()  # incarnations of which more than the mark stands
        self._packed: set[bytes] = set()
        self._table = VoidTable()
        self._table.end(origin, ended)

    def take(self, header: BatchHeader) -> None:
        """Take the next header of the log, of any origin."""
        series = header.name.series
        if series.origin != self._origin:
            return
        self._table.learn(header)
        if self._table.is_void(header):
            return
        incarnation = series.incarnation
        self._seen[incarnation] = max(self._seen.get(incarnation, -1), header.incarnation_sequence)
        if header.incarnation_sequence >= STATEMENT_SEQUENCE:
            self._stated.add(incarnation)
        if header.kind in (BatchKind.MESSAGES, BatchKind.FRAGMENT):
            self._packed.add(incarnation)

    def packed_anything(self, incarnation: bytes) -> bool:
        """True if the log has messages of the incarnation."""
        return incarnation in self._packed

    @property
    def order(self) -> list[bytes]:
        """Incarnations in the order in which the log shows them."""
        return list(self._seen)

    def end_of(self, incarnation: bytes) -> int:
        """Last sequence of the incarnation that counts; -1 for none."""
        stated = self._table.end_of(self._origin, incarnation)
        if stated is not None:
            return stated
        end = self._seen.get(incarnation, -1)
        if self._last is not None and self._last.incarnation == incarnation:
            end = max(end, self._last.end)
        return end

    def counts(self, incarnation: bytes, sequence: int) -> bool:
        """True if a batch that stands in the log before the mark counts. Call after the last
        `take`.
        """
        return sequence <= self.end_of(incarnation)

    def lost_its_tail(self) -> bool:
        """True if the log lacks batches of the last incarnation that it had confirmed."""
        last = self._last
        if last is None or last.end <= self._read_after:
            return False
        return self._seen.get(last.incarnation, -1) < last.end

    def predecessors(self) -> tuple[Predecessor, ...]:
        """Predecessors for the new incarnation's headers: newest first, back to the latest that has
        stated its own, inclusive. Of a long row that never got so far, the newest.
        """
        told: list[Predecessor] = []
        last = self._last
        if last is not None and last.incarnation not in self._seen:
            # Older than what was read, or the log has lost its mark: declared either way, since its
            # bytes may still be on their way.
            told.append(Predecessor(last.incarnation, self.end_of(last.incarnation)))
        for incarnation in reversed(self._seen):
            told.append(Predecessor(incarnation, self.end_of(incarnation)))
            if incarnation in self._stated:
                break
        if len(told) > MAX_PREDECESSORS:
            told = [*told[: MAX_PREDECESSORS - 1], told[-1]]
        return tuple(told)


def is_mark(header: BatchHeader, incarnation: bytes) -> bool:
    """True if this is the mark with which `incarnation` began."""
    return (
        header.kind is BatchKind.MARK
        and header.incarnation_sequence == MARK_SEQUENCE
        and header.name.series.incarnation == incarnation
    )
