"""Runs of a packer: which of their batches count, and which are void wherever they are met. Pure.

A packer that was paused and comes back, or whose last bytes still lay in a socket when its
successor began, must do no harm. So every run has a random ID, and every header that a run writes
says where the runs before it ended::

    I1/49  I1/50  mark(I2)  I1/51  statement(I2: I1 ended at 50)  I2/2 ...
                            void

- The *mark* (sequence 0 of the incarnation) is appended first and says nothing; the log is then
  read up to it, and what of I1 stands before it counts, for good.
- The *statement* (sequence 1) says so, before the first message of I2 is even asked for. It binds
  whoever comes next: until it stands in the log, the readers of this node wait at I1/51
  (`is_undecided`), since a successor that never saw I2's decision would decide anew.

A mark alone decides nothing: one that a packer without its lock writes late harms nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relay.batches.batch import BatchHeader, BatchKind, Predecessor

MARK_SEQUENCE = 0
STATEMENT_SEQUENCE = 1
INCARNATION_BYTES = 8
MAX_PREDECESSORS = 8
MAX_REMEMBERED = 4096
"""Ended incarnations remembered an origin; a packer that crashes every two seconds makes as many
in two hours, and bytes of a run that is so long gone lie in no socket any more."""


class VoidTable:
    """Where ended incarnations ended, learned from every header that is met.

    One a node, shared by its links and its deliverer. What two headers say differently, the
    larger end is right: the smaller one was read from a log that had lost its tail.
    `known`: (origin, predecessor) pairs from the node's state, the oldest first.
    """

    def __init__(self, known: Iterable[tuple[str, Predecessor]] = ()) -> None:
        self._ends: dict[str, dict[bytes, int]] = {}
        self._heard: dict[str, tuple[bytes, tuple[Predecessor, ...]]] = {}
        self._deciding: tuple[str, bytes, Mapping[bytes, int]] | None = None
        self._decided: set[Predecessor] = set()
        for origin, predecessor in known:
            self.end(origin, (predecessor,))

    def learn(self, header: BatchHeader) -> bool:
        """Take what the header says of its predecessors; whether that was news, which is to be
        written down. What this site's packer decided is, where it stands in the log.

        A void batch teaches nothing.
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
        """These incarnations have ended there; whether that was news."""
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

    def ends(self, origin: str, told: Iterable[Predecessor]) -> list[Predecessor]:
        """Where these have ended by all that is known, which may be further than was told."""
        known = self._ends.get(origin, {})
        return [Predecessor(one.incarnation, known.get(one.incarnation, one.end)) for one in told]

    def ended(self, origin: str) -> tuple[Predecessor, ...]:
        """All of that origin's incarnations that are known to have ended."""
        return tuple(Predecessor(*one) for one in self._ends.get(origin, {}).items())

    def end_of(self, origin: str, incarnation: bytes) -> int | None:
        """The last whole-incarnation sequence that counts; None while it has not ended."""
        ends = self._ends.get(origin)
        return None if ends is None else ends.get(incarnation)

    def is_void(self, header: BatchHeader) -> bool:
        """Whether the batch counts nowhere: its incarnation had ended before it was logged."""
        series = header.name.series
        ends = self._ends.get(series.origin)
        if ends is None:
            return False
        end = ends.get(series.incarnation)
        return end is not None and header.incarnation_sequence > end

    # What the packer of this node tells the readers beside it

    def deciding(self, origin: str, incarnation: bytes, counted: Mapping[bytes, int]) -> None:
        """This site's packer has begun `incarnation` and is about to append its mark.

        `counted`: for earlier incarnations, up to where they certainly count.
        """
        self._deciding = (origin, incarnation, dict(counted))

    def decided(self, predecessors: tuple[Predecessor, ...]) -> None:
        """The statement stands in the log."""
        if self._deciding is None:
            raise RuntimeError("decided without deciding: the packer's order of steps is wrong")
        origin = self._deciding[0]
        self._deciding = None
        self.end(origin, predecessors)
        self._decided |= set(predecessors)

    def is_undecided(self, header: BatchHeader) -> bool:
        """Whether a reader of the own log must wait for this site's packer before this batch."""
        if self._deciding is None:
            return False
        origin, incarnation, counted = self._deciding
        series = header.name.series
        if series.origin != origin or series.incarnation == incarnation:
            return False
        return header.incarnation_sequence > counted.get(series.incarnation, -1)


class OwnHistory:
    """The own site's incarnations, as its log shows them in order up to a new one's mark.

    `last` is what is known, apart from the log, of the last run: its batches up to that sequence
    were confirmed once. A log that has lost its tail does not make them void elsewhere.
    `read_after` is the sequence of that run which stands before the place where reading began.
    `ended` is what was stated before of others: retention may have taken the statement since, and
    not what landed late of such a run.
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
        """The next header of the log, whoever's it is."""
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
        """Whether the log has messages of that incarnation."""
        return incarnation in self._packed

    @property
    def order(self) -> list[bytes]:
        """Incarnations in the order in which the log shows them."""
        return list(self._seen)

    def end_of(self, incarnation: bytes) -> int:
        """The last sequence of that incarnation that counts; -1 for none."""
        stated = self._table.end_of(self._origin, incarnation)
        if stated is not None:
            return stated
        end = self._seen.get(incarnation, -1)
        if self._last is not None and self._last.incarnation == incarnation:
            end = max(end, self._last.end)
        return end

    def counts(self, incarnation: bytes, sequence: int) -> bool:
        """Whether a batch that stands in the log before the mark counts. Ask after the last."""
        return sequence <= self.end_of(incarnation)

    def lost_its_tail(self) -> bool:
        """Whether the log lacks batches of the last run that it had confirmed."""
        last = self._last
        if last is None or last.end <= self._read_after:
            return False
        return self._seen.get(last.incarnation, -1) < last.end

    def predecessors(self) -> tuple[Predecessor, ...]:
        """What the new incarnation's headers say: newest first, back to and with the latest one
        that has stated its own. Of a long row that never got so far, the newest.
        """
        told: list[Predecessor] = []
        last = self._last
        if last is not None and last.incarnation not in self._seen:
            # Older than what was read, or the log has lost its mark: told of either way, since
            # its bytes may be on their way still.
            told.append(Predecessor(last.incarnation, self.end_of(last.incarnation)))
        for incarnation in reversed(self._seen):
            told.append(Predecessor(incarnation, self.end_of(incarnation)))
            if incarnation in self._stated:
                break
        if len(told) > MAX_PREDECESSORS:
            told = [*told[: MAX_PREDECESSORS - 1], told[-1]]
        return tuple(told)


def is_mark(header: BatchHeader, incarnation: bytes) -> bool:
    """Whether this is the mark with which `incarnation` began."""
    return (
        header.kind is BatchKind.MARK
        and header.incarnation_sequence == MARK_SEQUENCE
        and header.name.series.incarnation == incarnation
    )
