"""I8: a position never passes what is unconfirmed. Looked at whenever one may have moved.

At the end of a world much is mended that was wrong for a moment: the next session of a link
compares logs. A position that was wrong meanwhile costs messages only if something else goes wrong
just then, so waiting for a loss would take very many worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from federation.mesh import Link, Mesh
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Place
from relay.batches.format import BadBatch, decode_entries, read_header
from relay.links.forwarding import Forwarding, Verdict
from relay.log.memory_log import MemoryStream
from relay.log.site_log import Record
from simulation.invariants import InvariantBroken
from simulation.load import which_of
from simulation.losses import MessageOf


class ObservedLog:
    """What a site's log has, in order, and every name that it ever had."""

    def __init__(self, stream: MemoryStream) -> None:
        self.ever: set[BatchName] = set()
        self.headers: list[BatchHeader] = []
        self.at: dict[BatchName, int] = {}
        """Index of the first of each name."""
        self.times_anew = 0
        """How often the log lost what had been looked at."""
        self._stream = stream
        self._next = 0
        self._records: list[Record] = []

    def about_to_lose(self) -> None:
        """The log loses its end now: all is looked at anew."""
        self.look()
        self.headers.clear()
        self.at.clear()
        self._records.clear()
        self._next = 0
        self.times_anew += 1

    def look(self) -> None:
        """Take in what is new."""
        while records := self._stream.chunk_at(self._next):
            for record in records:
                self._take(record)
            self._next = records[-1].offset + 1

    def messages(self, index: int) -> Iterator[MessageOf]:
        """Those of one batch; a message in pieces is not told."""
        header = self.headers[index]
        if header.kind is BatchKind.MESSAGES:
            for entry in decode_entries(self._records[index].data):
                yield header.name.series.exchange, *which_of(entry.body)

    def is_eaten(self, index: int) -> bool:
        """Whether retention has taken it since."""
        first, _ = self._stream.ends()
        return first is None or self._records[index].offset < first

    def _take(self, record: Record) -> None:
        try:
            header = read_header(record.data)
        except BadBatch:
            return
        self.ever.add(header.name)
        self.at.setdefault(header.name, len(self.headers))
        self.headers.append(header)
        self._records.append(record)


IsVoid = Callable[[BatchHeader], bool]


class PositionChecks:
    """All of a world's. `broken` is what was found first."""

    def __init__(
        self,
        mesh: Mesh,
        streams: dict[str, MemoryStream],
        has_come: Callable[[str, MessageOf], bool],
    ) -> None:
        """`has_come`: whether a message was ever seen in the queues of a site's application."""
        self.broken: InvariantBroken | None = None
        self._mesh = mesh
        self.logs = {site: ObservedLog(stream) for site, stream in streams.items()}
        self._has_come = has_come
        self._accepted: dict[str, set[BatchName]] = {site: set() for site in streams}
        self._lost_at_origin: set[BatchName] = set()
        self._good: dict[tuple[str, str], tuple[int, int, Place | None]] = {}
        """Of a site and what moves there: in which state of the log, and up to where all is good;
        the place looked at last."""
        self._carries: dict[str, Forwarding] = {}
        """What each link was to carry when it was looked at last."""

    def about_to_lose(self, site: str) -> None:
        """That site's log loses its end now."""
        self.logs[site].about_to_lose()

    def lost_at_origin(self, names: Iterable[BatchName]) -> None:
        """The log of the site that packed these loses them now: its next run may say that they
        never counted, and a run between that they did. Who passes one goes by what he heard first.
        """
        self._lost_at_origin.update(names)

    def about_to_eat(self, site: str) -> None:
        """Retention eats the head of that site's log now."""
        self.logs[site].look()

    def accepted(self, site: str, names: Iterable[BatchName]) -> None:
        """The operator has said that stages of that site go on without these."""
        self._accepted[site].update(names)

    def link(
        self,
        link: Link,
        place: Place | None,
        is_void: IsVoid,
        is_known: Callable[[BatchName], bool],
        forwarding: Forwarding,
    ) -> None:
        """A link believes that the receiver's log has all up to there of the sender's, as far as
        the sender's node knows it: of what landed there late, it has not read back yet, and will
        be sent back.
        """
        receiver = self.logs[link.receiver]
        looked = False
        if self._carries.get(link.name, forwarding) != forwarding:
            # What was passed over may be due now: then the link has to begin anew.
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
                # A node's first run may end before its links begin: a mark is all that it leaves,
                # and what that says, every header of the next run says too.
                continue
            if not is_known(header.name):
                self._good[link.sender, link.name] = log.times_anew, index, None
                return
            if forwarding.decide(header) is Verdict.SEND:
                self._say(
                    f"I8: the link {link.name} is past {header.name}, which is not in the log of"
                    f" {link.receiver}"
                )

    def deliverer(self, site: str, place: Place | None, is_void: IsVoid) -> None:
        """A site's deliverer keeps as its position that all up to there is settled."""
        own = self._mesh.sites[site].cluster_id
        for log, index in self._passed(site, "deliverer", place):
            header = log.headers[index]
            name = header.name
            if name.series.origin == own or name in self._accepted[site] or is_void(header):
                continue
            for message in log.messages(index):
                if not self._has_come(site, message):
                    self._say(f"I8: the deliverer of {site} is past {message}, which has not come")

    def _passed(
        self, site: str, what: str, place: Place | None
    ) -> Iterator[tuple[ObservedLog, int]]:
        """What the place has passed since it was looked at last."""
        times, good, last = self._good.get((site, what), (0, 0, None))
        if place is None or place is last:
            return
        log = self.logs[site]
        log.look()
        if times != log.times_anew:
            times, good = log.times_anew, 0
        end = log.at.get(place.name, -1) + 1
        self._good[site, what] = times, max(good, end), place
        for index in range(good, end):
            yield log, index

    def _say(self, what: str) -> None:
        if self.broken is None:
            self.broken = InvariantBroken(what)
