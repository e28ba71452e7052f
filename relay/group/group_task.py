"""Driver of a site's membership of its group: the network, the log, and the clock.

The group is a short cut: whatever fails here, the links bring. So no failure of the network ends
the task; it tries again, and says why it is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from relay.batches.batch import BatchHead, BatchHeader, BatchName, LoggedBatch, Series
from relay.batches.format import BadBatch, UnknownFormat, append_to_path, read_header, verify_digest
from relay.batches.known_formats import Formats
from relay.batches.signature import OriginUnknown
from relay.group.carrier import GroupCarrier, GroupUnreachable
from relay.group.datagram import (
    BadDatagram,
    DatagramOpener,
    DatagramSealer,
    GroupStream,
    new_epoch,
    site_id,
)
from relay.group.hearing import HeardSites
from relay.group.member import GroupMember
from relay.group.publisher import UNKNOWN
from relay.group.receiver import AppendFrame
from relay.group.settings import GroupSettings
from relay.links.transport.connection import Clock
from relay.log.hot_tail import Wish
from relay.log.reader import LogReader, PlaceLost
from relay.log.run import Appended, LogRun
from relay.log.site_log import LogRefused, SiteLogError
from relay.log.writer import LogWriter
from relay.retry import Backoff
from relay.waiters import until_first_ends

log = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_APPENDING_BYTES = 8 * 1024 * 1024
"""Bytes of batches that the log is appending; what comes beside is left to the links."""
_UNDECIDED_POLL_S = 0.02
_EPOCH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParts:
    """Parts of its node that a site's membership works with. Sites are named by cluster IDs."""

    agreement: bytes
    """Digest of what the sites of the group must have alike to hear each other."""
    own: str
    keys: Sequence[bytes]
    """Keys of the group; the first seals."""
    replayers: Sequence[str]
    settings: GroupSettings
    open_carrier: Callable[[], GroupCarrier]
    """Join the group. Raises GroupUnreachable."""
    writer: LogWriter
    sites: tuple[str, ...]
    """Other sites of the group."""
    formats: Formats
    is_undecided: Callable[[BatchHeader], bool]
    """Return True while the site's packer has yet to judge a batch of an earlier incarnation."""
    is_void: Callable[[BatchHeader], bool]
    """Return True if the batch was not logged before a later incarnation had begun."""
    check: Callable[[BatchHeader, memoryview], None]
    """Raise NotAuthentic or OriginUnknown unless the origin sent the batch."""
    knows: Callable[[str, int], bool]
    """Return True if the sites of a revision are kept, given the wall clock."""
    goes: Callable[[BatchHeader], bool]
    """Return True if the batch goes over the group, by its exchange."""
    takes: Callable[[BatchHeader], bool]
    """Return True if this site's log is to have the batch."""
    on_linked: Callable[[Sequence[BatchHeader]], None]
    """Note batches that the log has got from the group."""
    on_there: Callable[[BatchName, bool], None]
    """Note a batch that has come by the group and is in the log. False: something else had brought
    the batch before.
    """
    clock: Clock
    random: Callable[[], float]
    random_bytes: Callable[[int], bytes]


class GroupTask:
    """Membership of one site; `run` goes on until it is cancelled."""

    def __init__(self, parts: GroupParts) -> None:
        self._parts = parts
        self._wake = asyncio.Event()
        self._member: GroupMember | None = None
        self._run: LogRun | None = None
        self.appending_bytes = 0
        """Bytes of batches that the log is appending."""
        self._handed: dict[Series, int] = {}
        """Sequences of the latest batches that went to the log, by their series."""
        self._refusal = ""
        """Latest reason why a batch was not taken: each is logged once, however many come."""
        self.reason = "not joined yet"
        """Reason why nothing comes by the group; empty while the site is a member."""
        self.counters: Counter[str] = Counter()
        """Datagrams and batches by what became of them."""
        self.heard = HeardSites(parts.clock.now())
        """Sites that are heard since the present membership began."""

    @property
    def member(self) -> GroupMember | None:
        """Machine of the present membership, or None."""
        return self._member

    async def run(self) -> None:
        """Be a member, and join again whenever the network fails."""
        backoff = Backoff(1.0, 30.0, self._parts.random)
        failures = 0
        while True:
            try:
                carrier = self._parts.open_carrier()
                try:
                    failures = 0
                    await self._be_member(carrier)
                finally:
                    carrier.close()
            except GroupUnreachable as error:
                if error.reason != self.reason:
                    log.warning(
                        "multicast group: %s; links bring all meanwhile",
                        error.reason,
                        extra={"event": "group-away"},
                    )
                self.reason = error.reason
                failures += 1
            self._member = None
            await asyncio.sleep(backoff.delay_s(max(failures, 1)))

    async def _be_member(self, carrier: GroupCarrier) -> None:
        """Send and receive until the network fails. Raises GroupUnreachable."""
        parts, clock = self._parts, self._parts.clock
        run = await parts.writer.running()
        own = GroupStream(
            site_id(parts.own), new_epoch(clock.wall_ms(), parts.random_bytes(_EPOCH_BYTES))
        )
        start = parts.writer.checked
        member = self._member = GroupMember(
            own=own,
            replayers=[site_id(one) for one in parts.replayers],
            settings=parts.settings,
            log=self,
            random=parts.random,
            before="" if start is None else UNKNOWN,
            now=clock.now(),
            counters=self.counters,
        )
        sealer = DatagramSealer(parts.agreement, parts.keys[0], own)
        sites = [site_id(one) for one in (*parts.sites, parts.own)]
        opener = DatagramOpener(parts.agreement, parts.keys, sites)
        self._run = run
        self.heard = HeardSites(clock.now())
        carrier.listen(partial(self._on_datagram, opener, member))
        reader = parts.writer.reader(start, name="multicast group")
        reader.wish = Wish(parts.sites, self._is_own)
        self.reason = ""
        try:
            await until_first_ends(
                asyncio.create_task(self._publish(reader, member)),
                asyncio.create_task(self._tick(carrier, sealer, member)),
            )
        finally:
            await reader.close()

    # -- sending -----------------------------------------------------------------------------

    def _is_own(self, header: BatchHeader) -> bool:
        return header.path == (self._parts.own,) and self._parts.goes(header)

    async def _publish(self, reader: LogReader, member: GroupMember) -> None:
        while True:
            try:
                batches: list[LoggedBatch] = await reader.next_batches(_READ_BYTES)
            except PlaceLost as error:
                raise GroupUnreachable(f"the log was read again: {error}") from error
            except SiteLogError:
                await self._parts.writer.running()
                continue
            for _, header, data in batches:
                if isinstance(data, BatchHead):
                    continue  # the links say that it is gone
                if self._is_own(header) and await self._counts(header):
                    member.publish(str(header.name), bytes(data))
            self._wake.set()

    async def _counts(self, header: BatchHeader) -> bool:
        """Wait until the packer has decided about a batch, and return True unless it is void."""
        while self._parts.is_undecided(header):
            await asyncio.sleep(_UNDECIDED_POLL_S)
        return not self._parts.is_void(header)

    async def _tick(
        self, carrier: GroupCarrier, sealer: DatagramSealer, member: GroupMember
    ) -> None:
        clock = self._parts.clock
        while True:
            self._wake.clear()
            self._look_at_log(member)
            now = clock.now()
            turn = member.tick(now, clock.wall_ms())
            self._append(turn.append, member)
            for message in turn.send:
                carrier.send(sealer.seal(message))
            wait_s = member.wakeup(now) - clock.now()
            try:
                async with asyncio.timeout(max(0.0, wait_s)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _look_at_log(self, member: GroupMember) -> None:
        """Inform the machine of a new connection to the log: appends under way are in doubt."""
        run = self._parts.writer.run
        if run is not self._run:
            self._run = run
            self._handed.clear()
            member.receiver.log_changed(is_there=run is not None)

    # -- receiving ---------------------------------------------------------------------------

    def _on_datagram(self, opener: DatagramOpener, member: GroupMember, datagram: bytes) -> None:
        try:
            received = opener.open(datagram)
        except BadDatagram as error:
            self.counters[error.reason] += 1
            return
        self.heard.note(received, self._parts.clock.now())
        self._look_at_log(member)
        before = member.wakeup(self._parts.clock.now())
        self._append(member.received(received, self._parts.clock.now()), member)
        if member.wakeup(self._parts.clock.now()) < before:
            self._wake.set()

    def accept(self, publisher: bytes, batch: bytes) -> str | None:
        """Return the name of a batch that comes from its origin itself, the publisher, undamaged
        and signed, and of a mesh file that is known; None of any other.
        """
        parts = self._parts
        try:
            header = read_header(batch, parts.formats.newest_batch)
            verify_digest(batch)
            parts.check(header, memoryview(batch))
        except (BadBatch, UnknownFormat, OriginUnknown) as error:
            # By a member of the group, or of another mesh file: the links decide.
            self.counters["refused"] += 1
            if str(error) != self._refusal:
                log.warning(
                    "multicast group: not taken: %s", error, extra={"event": "group-batch-refused"}
                )
            self._refusal = str(error)
            return None
        origin = header.name.series.origin
        if header.path != (origin,) or site_id(origin) != publisher or not parts.goes(header):
            return None
        is_known = parts.knows(header.revision, parts.clock.wall_ms())
        return str(header.name) if is_known else None

    def has(self, name: str) -> bool:
        """Return True if the site's log has the batch of a name."""
        parsed = _parsed(name)
        return parsed is not None and parsed in self._parts.writer.logged

    def _append(self, appends: Sequence[AppendFrame], member: GroupMember) -> None:
        failed: set[GroupStream] = set()
        for append in appends:
            if append.stream in failed:
                continue  # a later one of its stream, out of turn
            header = read_header(append.batch, self._parts.formats.newest_batch)
            if not self._parts.takes(header):
                continue
            if self.appending_bytes > _APPENDING_BYTES or not self._follows(header):
                failed.add(append.stream)
                member.receiver.failed(append)
                continue
            ours = replace(header, path=(*header.path, self._parts.own))
            passed_on = append_to_path(append.batch, self._parts.own)
            try:
                appending = self._parts.writer.append_nowait(ours, passed_on)
            except LogRefused:
                failed.add(append.stream)
                member.receiver.failed(append)
                continue
            self._handed[header.name.series] = header.name.sequence
            self.appending_bytes += len(append.batch)
            appending.add_done_callback(partial(self._appended, append, ours, member))

    def _follows(self, header: BatchHeader) -> bool:
        """Return True if the log has, or is getting, the batch before in the series. A frame's
        place in its stream is not signed, and every member of the group could write another.
        """
        series, sequence = header.name
        if sequence == 0:
            # What stands before is of another series, and the header does not name which.
            return not header.predecessors
        before = BatchName(series, sequence - 1)
        return self._handed.get(series) == sequence - 1 or before in self._parts.writer.logged

    def _appended(
        self,
        append: AppendFrame,
        header: BatchHeader,
        member: GroupMember,
        appending: asyncio.Future[Appended],
    ) -> None:
        self.appending_bytes -= len(append.batch)
        if appending.cancelled():
            return
        if appending.exception() is not None:
            self._handed.clear()
            member.receiver.failed(append)
            return
        is_first = appending.result() is not Appended.ALREADY_LOGGED
        if is_first:
            self.counters["appended"] += 1
            self._parts.on_linked([header])
        self._parts.on_there(header.name, is_first)


@lru_cache(maxsize=4096)
def _parsed(name: str) -> BatchName | None:
    """Return a name as a batch has it, or None for none; of a lost stream all are asked again."""
    try:
        return BatchName.parse(name)
    except ValueError:
        return None
