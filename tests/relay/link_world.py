"""Two logs and the link between them, in virtual time: what the machines' tests run in.

Everything is one heap of calls. The machines are the real ones, and so is the memory transport;
the logs are lists. A crash drops a machine and keeps what its log and its memory have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from federation.mesh import ForwardingRule
from relay.batches.batch import BatchHeader, BatchName
from relay.batches.format import read_header
from relay.batches.known_formats import KNOWN
from relay.links.forwarding import Forwarding
from relay.links.position import LinkPosition
from relay.links.receiver.actions import Append, Learn, LogFacts, Quarantine, ReceiverAction
from relay.links.receiver.machine import LinkReceiver
from relay.links.sender.actions import (
    Disconnect,
    GaveUpOn,
    ReadFrom,
    Save,
    SenderAction,
    StopReading,
)
from relay.links.sender.machine import LinkSender
from relay.links.sender.parts import SenderParts
from relay.links.sender.session import SenderPhase
from relay.links.settings import MIB, LinkSettings
from relay.links.transport.link_end import Carried, LinkTransportError
from relay.links.transport.memory import MemoryEnd, MemoryLineSettings, MemoryMeeting
from relay.links.wire import Send
from relay.tracing.batch_trace import LinkTrace
from tests.relay.link_logs import PARIS, TOKYO, SourceLog, TargetLog
from tests.relay.timed_calls import Alarm, VirtualTime

TO_TOKYO = Forwarding(
    ForwardingRule.RING, PARIS, TOKYO, frozenset({TOKYO}), frozenset({PARIS, TOKYO})
)


class LinkWorld:
    """One link from paris to tokyo."""

    def __init__(
        self,
        seed: int = 1,
        *,
        settings: LinkSettings | None = None,
        delay_s: float = 0.02,
        bytes_per_s: float = float("inf"),
        forwarding: Forwarding = TO_TOKYO,
        is_void: Callable[[BatchHeader], bool] = lambda header: False,
    ) -> None:
        self.random = random.Random(seed)
        self.time = VirtualTime()
        self.settings = settings or LinkSettings()
        self.forwarding = forwarding
        self.is_void = is_void
        self.meeting = MemoryMeeting(
            self.time.call_later, queue_bytes=2 * self.settings.window_bytes + MIB + 1024 * 1024
        )
        self.line = MemoryLineSettings(delay_s, bytes_per_s)
        self.source = SourceLog()
        self.source.on_append = self._pump
        self.target = TargetLog(self.time)
        self.saved: bytes | None = None
        self.sender_formats = self.receiver_formats = KNOWN
        self.comes_otherwise: Callable[[BatchHeader], bool] = lambda header: True
        """Return True if the receiver may get a batch otherwise."""
        self.trace: LinkTrace | None = None
        self.members: dict[str, bytes] = {}
        """Revision -> its sites, as the sender knows them."""
        self.check: Callable[[BatchHeader, memoryview], None] = lambda header, batch: None
        """What the receiver asks of whose a batch is."""
        self.known: dict[str, bytes] = {}
        """... and as the receiver keeps them, over crashes."""
        self.carries: Callable[[bytes], bool] = lambda frame: True
        """Whether the line brings this frame of the sender's."""
        self.quarantined: list[str] = []
        self.given_up: list[tuple[BatchName, str]] = []
        self.batches_sent: list[BatchName] = []
        self.sender: LinkSender | None = None
        self.receiver: LinkReceiver | None = None
        self.sender_end: MemoryEnd | None = None
        self.receiver_end: MemoryEnd | None = None
        self.sender_paused = False
        self._checked = 0
        self._checked_for = (b"", b"")
        self._pumping = False
        self._cursor = 0
        self._reading: int | None = None
        self._sender_life = 0
        self._receiver_life = 0
        self._sender_alarm = Alarm(self.time, self._tick_sender)
        self._receiver_alarm = Alarm(self.time, self._tick_receiver)

    # Life of the two processes

    def start(self) -> None:
        self.start_sender()
        self.start_receiver()

    def start_sender(self) -> None:
        kept = LinkPosition.decode(self.saved, self.time.now) if self.saved else None
        self._sender_life += 1
        self.sender = LinkSender(
            forwarding=self.forwarding,
            receiver_user="user-tokyo",
            position=kept,
            parts=SenderParts(
                random=self.random.random,
                random_bytes=self.random.randbytes,
                is_void=self.is_void,
                members=self.members.get,
                comes_otherwise=lambda header: self.comes_otherwise(header),
                trace=self.trace,
            ),
            settings=self.settings,
            formats=self.sender_formats,
        )
        self._reading = None
        self._connect_sender()

    def crash_sender(self) -> None:
        self._sender_life += 1
        self.sender = None
        if self.sender_end is not None:
            self.sender_end.lost("crash")
            self.sender_end = None

    def start_receiver(self) -> None:
        self._receiver_life += 1
        self.receiver = LinkReceiver(
            own=TOKYO,
            neighbour=PARIS,
            sender_user="user-paris",
            knows=lambda revision, wall_ms: revision in self.known,
            check=lambda header, batch: self.check(header, batch),
            settings=self.settings,
            formats=self.receiver_formats,
        )
        target = self.target
        self.receiver.log_opened(
            LogFacts(target.run, target.log_id, target.names.encode), self.time.now
        )
        self._connect_receiver()

    def crash_receiver(self, lost: int = 0, *, says_so: bool = True) -> None:
        self._receiver_life += 1
        self.receiver = None
        if self.receiver_end is not None:
            self.receiver_end.lost("crash")
            self.receiver_end = None
        self.target.reopen(self.random, lost, says_so=says_so)

    def roll_back(self, lost: int, *, says_so: bool = True) -> None:
        """The receiver's broker loses its log's tail under the living node."""
        assert self.receiver is not None
        self._do_receiver(self.receiver.log_lost("log away"))
        self.target.reopen(self.random, lost, says_so=says_so)
        target = self.target
        facts = LogFacts(target.run, target.log_id, target.names.encode)
        self._do_receiver(self.receiver.log_opened(facts, self.time.now))

    # Sender

    def _connect_sender(self) -> None:
        sender, life = self.sender, self._sender_life
        if sender is None:
            return
        try:
            end = self.meeting.sender_end("user-paris", self.line)
        except LinkTransportError as error:
            self._do_sender(sender.disconnected(self.time.now, error.reason))
            self.time.call_later(1.0, lambda: life == self._sender_life and self._connect_sender())
            return
        self.sender_end = end
        end.listen(
            _Ears(
                partial(self._sender_heard, life),
                partial(self._sender_returned, life),
                partial(self._sender_closed, life),
            )
        )
        self._do_sender(sender.connected(self.time.now, end.status))

    def _sender_heard(self, life: int, frames: Sequence[Carried]) -> None:
        if life != self._sender_life or self.sender is None:
            return
        for sender, frame in frames:
            self._do_sender(self.sender.frame(sender, frame, self.time.now))

    def _sender_returned(self, life: int, head: bytes) -> None:
        if life == self._sender_life and self.sender is not None:
            self._do_sender(self.sender.frame_returned(head, self.time.now))

    def _sender_closed(self, life: int, reason: str) -> None:
        if life != self._sender_life or self.sender is None:
            return
        self.sender_end = None
        self._do_sender(self.sender.disconnected(self.time.now, reason))
        self.time.call_later(0.5, lambda: life == self._sender_life and self._connect_sender())

    def _do_sender(self, actions: Sequence[SenderAction]) -> None:
        for action in actions:
            if isinstance(action, Send):
                if self.sender_end is not None and self.carries(action.frame):
                    self.sender_end.send(action.frame)
            elif isinstance(action, ReadFrom):
                self._cursor = self.source.index_after(action.place)
                self._reading = action.session
            elif isinstance(action, StopReading):
                self._reading = None
            elif isinstance(action, Save):
                self.saved = action.position.encode()
            elif isinstance(action, Disconnect):
                if self.sender_end is not None:
                    self.sender_end.abort(action.reason)
            else:
                assert isinstance(action, GaveUpOn)
                self.given_up.append(action)
        self.check_position()
        self._pump()
        self._sender_alarm.set(self.sender.wakeup() if self.sender else None)

    def _pump(self) -> None:
        sender = self.sender
        if sender is None or self.sender_paused or self._pumping:
            return
        self._pumping = True
        try:
            self._pump_while_there_is_room(sender)
        finally:
            self._pumping = False

    def _pump_while_there_is_room(self, sender: LinkSender) -> None:
        while self._reading is not None and (room := sender.room()) > 0:
            batches = self.source.batches[self._cursor : self._cursor + 50]
            if not batches:
                return
            taken, nbytes = [], 0
            for batch in batches:
                if taken and nbytes + len(batch.data) > room:
                    break
                taken.append(batch)
                nbytes += len(batch.data)
            self._cursor += len(taken)
            session = self._reading
            before = sender.counters.sent
            actions = sender.batches(taken, session, self.time.now)
            if sender.counters.sent > before:
                self.batches_sent.extend(
                    b.header.name for b in taken if self.forwarding.decide(b.header) == "send"
                )
            self._do_sender(actions)

    def _tick_sender(self) -> None:
        if self.sender is None or self.sender_paused:
            return
        if self.sender_end is not None and self.sender.phase is not SenderPhase.DISCONNECTED:
            line = self.sender_end.status
            self._do_sender(self.sender.tick(self.time.now, self.time.wall_ms, line))
        self._sender_alarm.set(self.sender.wakeup())

    def resume_sender(self) -> None:
        self.sender_paused = False
        if self.sender_end is not None:
            self.sender_end.resume()
        self._tick_sender()

    # Receiver

    def _connect_receiver(self) -> None:
        receiver, life = self.receiver, self._receiver_life
        if receiver is None:
            return
        try:
            end = self.meeting.receiver_end("user-tokyo", self.line)
        except LinkTransportError:
            self.time.call_later(
                1.0, lambda: life == self._receiver_life and self._connect_receiver()
            )
            return
        self.receiver_end = end
        end.listen(
            _Ears(
                partial(self._receiver_heard, life),
                lambda head: None,
                partial(self._receiver_closed, life),
            )
        )
        self._do_receiver(receiver.connected(self.time.now))

    def change_receivers_mesh(self, check: Callable[[BatchHeader, memoryview], None]) -> None:
        """It takes up a mesh file that says this of whose batches are."""
        assert self.receiver is not None
        self.check = check
        self._do_receiver(self.receiver.mesh_changed())

    def _receiver_heard(self, life: int, frames: Sequence[Carried]) -> None:
        for sender, frame in frames:
            if life != self._receiver_life or self.receiver is None:
                return
            actions = self.receiver.frame(sender, frame, self.time.now, self.time.wall_ms)
            self._do_receiver(actions)

    def _receiver_closed(self, life: int, reason: str) -> None:
        if life != self._receiver_life or self.receiver is None:
            return
        self.receiver_end = None
        self._do_receiver(self.receiver.disconnected(reason))
        self.time.call_later(0.5, lambda: life == self._receiver_life and self._connect_receiver())

    def _do_receiver(self, actions: Sequence[ReceiverAction]) -> None:
        for action in actions:
            if isinstance(action, Send):
                if self.receiver_end is not None:
                    self.receiver_end.send(action.frame)
            elif isinstance(action, Append):
                self._append(action)
            elif isinstance(action, Learn):
                self.known[action.revision] = action.sites
            else:
                assert isinstance(action, Quarantine)
                self.quarantined.append(action.reason)
        self._receiver_alarm.set(self.receiver.wakeup() if self.receiver else None)

    def _append(self, action: Append) -> None:
        life = self._receiver_life

        def told(known: bool) -> None:
            if life == self._receiver_life and self.receiver is not None:
                self._do_receiver(
                    self.receiver.appended(
                        action.session, action.number, known, self.time.now, self.time.wall_ms
                    )
                )

        self.target.append(action.header, action.data, told)

    def _tick_receiver(self) -> None:
        if self.receiver is None:
            return
        if self.receiver_end is not None and self.receiver_end.paused:
            self._receiver_alarm.set(self.time.now + 0.5)
            return
        self._do_receiver(self.receiver.tick(self.time.now, self.time.wall_ms))

    # What must hold

    def due(self) -> list[BatchName]:
        """What the receiver's log should have in the end, in order."""
        return [
            batch.header.name
            for batch in self.source.batches
            if self.forwarding.decide(batch.header) == "send" and not self.is_void(batch.header)
        ]

    def check_position(self) -> None:
        """The position never passes what the receiver's log does not have.

        It may speak of an earlier run of the receiver's: then the next session looks again.
        """
        sender = self.sender
        if sender is None or (position := sender.position) is None:
            return
        if (position.run, position.receiver_log) != (self.target.run, self.target.log_id):
            return
        passed = self.source.index_after(position.place)
        there = self._there_up_to(passed)
        assert there == passed, f"passed {self.source.batches[there].header.name}, not logged"

    def _there_up_to(self, index: int) -> int:
        """Up to where, at most `index`, the receiver's log has all it should."""
        target = self.target
        if self._checked_for != (target.run, target.log_id):
            self._checked_for, self._checked = (target.run, target.log_id), 0
        refused = {name for name, _ in self.given_up}
        while self._checked < index:
            header = self.source.batches[self._checked].header
            if (
                header.name not in target.names
                and header.name not in refused
                and self.forwarding.decide(header) == "send"
                and not self.is_void(header)
            ):
                return self._checked
            self._checked += 1
        return index

    def all_arrived(self) -> bool:
        return self._there_up_to(len(self.source.batches)) == len(self.source.batches)

    def run_until_arrived(self, within_s: float) -> None:
        limit = self.time.now + within_s
        assert self.time.run_until(limit, self.all_arrived), (
            f"after {within_s} s: {len(self.target.names)} of {len(self.due())}, "
            f"sender {self.sender and (self.sender.phase, self.sender.reason)}, "
            f"{self.sender and self.sender.counters}, {self.receiver and self.receiver.counters}"
        )

    def check_log(self) -> None:
        """Each batch once, with the path that it came by."""
        names = [name for name, _ in self.target.confirmed]
        assert len(names) == len(set(names)), "a batch stands in the log twice"
        for name, data in self.target.confirmed:
            header = read_header(data)
            assert header.name == name
            assert header.path[-2:] == (PARIS, TOKYO)


@dataclass(frozen=True, slots=True)
class _Ears:
    """What one end hears, told to the life of the process that it belongs to."""

    on_frames: Callable[[Sequence[Carried]], None]
    on_returned: Callable[[bytes], None]
    on_closed: Callable[[str], None]
