"""Invariant I8: a position never passes an unconfirmed batch. Checked whenever a position may have
moved.

Momentary errors are mended by the end of a world: the next session of a link compares logs. A
position that was wrong meanwhile costs messages only if something else goes wrong just then, so
waiting for a loss would take very many worlds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from federation.mesh import Mesh
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Place
from relay.batches.format import BadBatch, UnknownFormat, decode_entries, read_header
from relay.content.reference import ContentReference
from relay.links.forwarding import Forwarding, ForwardingDecision
from relay.log.memory_log import MemoryStream
from relay.log.site_log import Record
from simulation.invariants import InvariantBroken
from simulation.load import origin_and_number
from simulation.losses import MessageOf
from simulation.trace import Trace


class ObservedLog:
    """Content of a log in order, and every batch name that it ever had."""

    def __init__(self, stream: MemoryStream) -> None:
        self.ever: set[BatchName] = set()
        self.headers: list[BatchHeader] = []
        self.at: dict[BatchName, int] = {}
        """Index of the first batch of each name."""
        self.times_anew = 0
        """Number of times that the log lost observed records."""
        self._stream = stream
        self._next = 0
        self._records: list[Record] = []

    def about_to_lose(self) -> None:
        """Forget the observed records before the log loses its end."""
        self.look()
        self.headers.clear()
        self.at.clear()
        self._records.clear()
        self._next = 0
        self.times_anew += 1

    def look(self) -> None:
        """Read the new records."""
        while records := self._stream.chunk_at(self._next):
            for record in records:
                self._take(record)
            self._next = records[-1].offset + 1

    def messages(self, index: int) -> Iterator[MessageOf]:
        """Yield the messages of one batch; messages in fragments are left out."""
        header = self.headers[index]
        if header.kind is BatchKind.MESSAGES:
            for entry in decode_entries(self._records[index].data):
                yield header.name.series.exchange, *origin_and_number(entry.body)

    def is_eaten(self, index: int) -> bool:
        """True if retention has taken the batch."""
        first, _ = self._stream.ends()
        return first is None or self._records[index].offset < first

    def _take(self, record: Record) -> None:
        try:
            reference = ContentReference.decode(record.data)
            header = read_header(record.data if reference is None else reference.head)
        except (BadBatch, UnknownFormat):
            return  # no batch for any node
        self.ever.add(header.name)
        self.at.setdefault(header.name, len(self.headers))
        self.headers.append(header)
        self._records.append(record)


IsVoid = Callable[[BatchHeader], bool]


class CheckedLink(NamedTuple):
    """Link, or strand of one, by its name and those of the logs that it runs between."""

    name: str
    sender: str
    receiver: str


class PositionChecks:
    """Checks of all positions of a world; `broken` is the first violation. A log has its site's
    name, and at a site of several slots that of the site and the slot.
    """

    def __init__(
        self,
        mesh: Mesh,
        streams: dict[str, MemoryStream],
        has_come: Callable[[str, MessageOf], bool],
        trace: Trace,
    ) -> None:
        """`has_come` returns True if a message was ever in the queues of a site's application."""
        self.broken: InvariantBroken | None = None
        self._trace = trace
        self._mesh = mesh
        self.logs = {log: ObservedLog(stream) for log, stream in streams.items()}
        self._has_come = has_come
        self._accepted: dict[str, set[BatchName]] = {log: set() for log in streams}
        self._lost_at_origin: set[BatchName] = set()
        self._good: dict[tuple[str, str], tuple[int, int, Place | None]] = {}
        """State of the log, index up to which all is good, and last place, by log and reader."""
        self._carries: dict[str, Forwarding] = {}
        """Forwarding of each link at its latest check."""

    def about_to_lose(self, log: str) -> None:
        """Prepare for the loss of a log's end."""
        self.logs[log].about_to_lose()

    def lost_at_origin(self, names: Iterable[BatchName]) -> None:
        """Exempt batches that the log of their own packer is about to lose.

        The next incarnation may declare that they never counted, and an incarnation between, that
        they did; a reader goes by the declaration that it met first.
        """
        self._lost_at_origin.update(names)

    def about_to_eat(self, log: str) -> None:
        """Read a log before retention eats its head."""
        self.logs[log].look()

    def accepted(self, log: str, names: Iterable[BatchName]) -> None:
        """Exempt batches of a gap in a log that the site's operator has accepted."""
        self._accepted[log].update(names)

    def link(
        self,
        link: CheckedLink,
        place: Place | None,
        is_void: IsVoid,
        is_known: Callable[[BatchName], bool],
        forwarding: Forwarding,
    ) -> None:
        """Check that the receiver's log has all batches up to a link's place in the sender's log.

        Only batches that the sender's node knows count: batches that landed late are not read back
        yet, and will be sent.
        """
        receiver = self.logs[link.receiver]
        looked = False
        if self._carries.get(link.name, forwarding) != forwarding:
            # Batches passed over may be due now: the link has to begin anew.
            self._good.pop((link.sender, link.name), None)
        self._carries[link.name] = forwarding
        for log, index in self._passed(link.sender, link.name, place):
            if not looked:
                receiver.look()
                looked = True
            header = log.headers[index]
            if (
                header.name in receiver.ever
                or header.name in self._accepted[link.sender]
                or header.name in self._lost_at_origin
                or is_void(header)
                or (header.kind is BatchKind.MARK and log.is_eaten(index))
            ):
                # A node's first incarnation may end before its links begin, and leave only a mark,
                # whose content every header of the next incarnation repeats.
                continue
            if not is_known(header.name):
                self._good[link.sender, link.name] = log.times_anew, index, None
                return
            if forwarding.decide(header) is ForwardingDecision.SEND:
                self._report(
                    f"I8: the link {link.name} is past {header.name}, which was not in the log of"
                    f" {link.receiver}"
                )

    def deliverer(self, site: str, log: str, place: Place | None, is_void: IsVoid) -> None:
        """Check that all batches of a site's log up to its deliverer's position are settled."""
        own = self._mesh.sites[site].cluster_id
        for observed, index in self._passed(log, "deliverer", place):
            header = observed.headers[index]
            name = header.name
            if name.series.origin == own or name in self._accepted[log] or is_void(header):
                continue
            for message in observed.messages(index):
                if not self._has_come(site, message):
                    self._report(
                        f"I8: the deliverer of {log} is past {message} of batch {name}, which had"
                        " not come"
                    )

    def _passed(
        self, name: str, what: str, place: Place | None
    ) -> Iterator[tuple[ObservedLog, int]]:
        """Yield the batches of a log that the place has passed since the latest check."""
        times, good, last = self._good.get((name, what), (0, 0, None))
        if place is None or place is last:
            return
        log = self.logs[name]
        log.look()
        if times != log.times_anew:
            times, good = log.times_anew, 0
        end = log.at.get(place.name, -1) + 1
        self._good[name, what] = times, max(good, end), place
        for index in range(good, end):
            yield log, index

    def _report(self, what: str) -> None:
        if self.broken is None:
            # A world ends later, when its faults are over: the time is that of the mistake.
            self.broken = InvariantBroken(f"{what} at {asyncio.get_running_loop().time():.6f} s")
            self._trace.add("past", "mesh", what)
