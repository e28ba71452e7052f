"""Two logs and the link between them, in virtual time: what the machines' tests run in.

Everything is one heap of calls. The machines are the real ones, and so is the memory transport;
the logs are lists. A crash drops a machine and keeps what its log and its memory have.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from federation.mesh import ForwardingRule
from relay.batch import (
    EVERY_SITE,
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    LoggedBatch,
    Place,
    Series,
)
from relay.batch_format import read_header, seal
from relay.forwarding import Forwarding
from relay.link_position import LinkPosition
from relay.link_receiver import Append, LinkReceiver, LogFacts, Quarantine, ReceiverAction
from relay.link_sender import (
    Disconnect,
    GaveUpOn,
    LinkSender,
    ReadFrom,
    Save,
    SenderAction,
    SenderPhase,
    StopReading,
)
from relay.link_settings import MIB, LinkSettings
from relay.link_transport import Carried, LinkTransportError
from relay.link_wire import Send
from relay.memory_transport import MemoryEnd, MemoryLineSettings, MemoryMeeting
from relay.name_set import NameSet

PARIS, TOKYO = "paris", "tokyo"
TO_TOKYO = Forwarding(
    ForwardingRule.RING, PARIS, TOKYO, frozenset({TOKYO}), frozenset({PARIS, TOKYO})
)


class VirtualTime:
    """Calls in order of their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (self.now + delay, next(self._order), call))

    def run_until(self, limit: float, done: Callable[[], bool] | None = None) -> bool:
        """Run up to `limit`; stop earlier, and say so, when `done`."""
        while True:
            if done is not None and done():
                return True
            if not self._calls or self._calls[0][0] > limit:
                self.now = max(self.now, limit)
                return False
            self.now, _, call = heapq.heappop(self._calls)
            call()

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self.now * 1000)


def make_batch(
    sequence: int,
    *,
    size: int = 100,
    incarnation: bytes = b"incarn-1",
    path: Sequence[str] = (PARIS,),
    destinations: tuple[str, ...] = EVERY_SITE,
    kind: BatchKind = BatchKind.MESSAGES,
    seed: int = 0,
) -> tuple[BatchHeader, bytes]:
    """A real batch of one message whose body cannot be compressed."""
    body = random.Random(seed * 1_000_003 + sequence).randbytes(size)
    series = Series(path[0], incarnation, "orders", 0, destinations)
    header = BatchHeader(
        kind, BatchName(series, sequence), sequence, (), "rev", 0, 0, sequence, 0, 1, 1, tuple(path)
    )
    return seal(header, [Entry(bytes(16), b"key", b"\0\0", body, 1)])


class SourceLog:
    """The sender's log: never loses anything here."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.on_append: Callable[[], None] = lambda: None
        self._index: dict[BatchName, int] = {}

    def append(self, header: BatchHeader, data: bytes) -> None:
        self._index[header.name] = len(self.batches)
        self.batches.append(LoggedBatch(Place(len(self.batches), header.name), header, data))
        self.on_append()

    def index_after(self, place: Place | None) -> int:
        return 0 if place is None else self._index[place.name] + 1


@dataclass
class TargetLog:
    """The receiver's log: confirms late, and may lose its tail."""

    time: VirtualTime
    confirm_s: float = 0.01
    run_number: int = 0
    log_number: int = 0
    stuck: bool = False
    confirmed: list[tuple[BatchName, bytes]] = field(default_factory=list)
    names: NameSet = field(default_factory=NameSet)
    in_flight: list[tuple[BatchName, bytes, list[Callable[[bool], None]]]] = field(
        default_factory=list
    )
    open: bool = True

    @property
    def run(self) -> bytes:
        return b"run%05d" % self.run_number

    @property
    def log_id(self) -> bytes:
        return b"tokyo-log-%d" % self.log_number

    def append(self, header: BatchHeader, data: bytes, told: Callable[[bool], None]) -> None:
        name = header.name
        if name in self.names:
            self.time.call_later(0.0, lambda: told(True))
            return
        for waiting, _, tell in self.in_flight:
            if waiting == name:
                tell.append(told)
                return
        self.in_flight.append((name, data, [told]))
        if not self.stuck:
            run = self.run_number
            self.time.call_later(self.confirm_s, lambda: self._confirm(run, name))

    def _confirm(self, run: int, upto: BatchName) -> None:
        if run != self.run_number or self.stuck:
            return
        while self.in_flight and upto not in self.names:
            name, data, tell = self.in_flight.pop(0)
            self.confirmed.append((name, data))
            self.names.add(name)
            for index, told in enumerate(tell):
                told(index > 0)

    def unstick(self) -> None:
        self.stuck = False
        if self.in_flight:
            run, last = self.run_number, self.in_flight[-1][0]
            self.time.call_later(self.confirm_s, lambda: self._confirm(run, last))

    def reopen(self, rng: random.Random, lost: int, *, says_so: bool = True) -> None:
        """A new connection: some of what was in flight may have landed, and the last `lost`
        records are gone (`says_so`: the log gets a new ID for it).
        """
        landed = rng.randint(0, len(self.in_flight))
        for name, data, _ in self.in_flight[:landed]:
            self.confirmed.append((name, data))
            self.names.add(name)
        self.in_flight.clear()
        for name, _ in self.confirmed[len(self.confirmed) - lost :] if lost else []:
            self.names.discard(name)
        del self.confirmed[len(self.confirmed) - lost :]
        self.run_number += 1
        self.log_number += bool(lost and says_so)


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
        self._sender_timer: float | None = None
        self._receiver_timer: float | None = None

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
            random=self.random.random,
            random_bytes=self.random.randbytes,
            is_void=self.is_void,
            settings=self.settings,
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
            own=TOKYO, neighbour=PARIS, sender_user="user-paris", settings=self.settings
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
        end.listen(_SenderEars(self, life))
        self._do_sender(sender.connected(self.time.now, end.line))

    def sender_heard(self, life: int, frames: Sequence[Carried]) -> None:
        if life != self._sender_life or self.sender is None:
            return
        for sender, frame in frames:
            self._do_sender(self.sender.frame(sender, frame, self.time.now))

    def sender_returned(self, life: int, head: bytes) -> None:
        if life == self._sender_life and self.sender is not None:
            self._do_sender(self.sender.nobody(head, self.time.now))

    def sender_closed(self, life: int, reason: str) -> None:
        if life != self._sender_life or self.sender is None:
            return
        self.sender_end = None
        self._do_sender(self.sender.disconnected(self.time.now, reason))
        self.time.call_later(0.5, lambda: life == self._sender_life and self._connect_sender())

    def _do_sender(self, actions: Sequence[SenderAction]) -> None:
        for action in actions:
            if isinstance(action, Send):
                if self.sender_end is not None:
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
        self._arm_sender()

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

    def _arm_sender(self) -> None:
        if self.sender is None:
            return
        due = self.sender.wakeup()
        if due is None or (self._sender_timer is not None and self._sender_timer <= due):
            return
        self._sender_timer = due
        self.time.call_later(max(0.0, due - self.time.now), lambda: self._tick_sender(due))

    def _tick_sender(self, due: float) -> None:
        if self._sender_timer == due:
            self._sender_timer = None
        if self.sender is None or self.sender_paused:
            return
        if self.sender_end is not None and self.sender.phase is not SenderPhase.DISCONNECTED:
            line = self.sender_end.line
            self._do_sender(self.sender.tick(self.time.now, self.time.wall_ms, line))
        self._arm_sender()

    def resume_sender(self) -> None:
        self.sender_paused = False
        if self.sender_end is not None:
            self.sender_end.resume()
        self._tick_sender(self.time.now)

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
        end.listen(_ReceiverEars(self, life))
        self._do_receiver(receiver.connected(self.time.now))

    def receiver_heard(self, life: int, frames: Sequence[Carried]) -> None:
        for sender, frame in frames:
            if life != self._receiver_life or self.receiver is None:
                return
            actions = self.receiver.frame(sender, frame, self.time.now, self.time.wall_ms)
            self._do_receiver(actions)

    def receiver_closed(self, life: int, reason: str) -> None:
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
            else:
                assert isinstance(action, Quarantine)
                self.quarantined.append(action.reason)
        self._arm_receiver()

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

    def _arm_receiver(self) -> None:
        if self.receiver is None:
            return
        due = self.receiver.wakeup()
        if due is None or (self._receiver_timer is not None and self._receiver_timer <= due):
            return
        self._receiver_timer = due
        self.time.call_later(max(0.0, due - self.time.now), lambda: self._tick_receiver(due))

    def _tick_receiver(self, due: float) -> None:
        if self._receiver_timer == due:
            self._receiver_timer = None
        if self.receiver is None:
            return
        if self.receiver_end is not None and self.receiver_end.paused:
            self._receiver_timer = self.time.now + 0.5
            self.time.call_later(0.5, lambda: self._tick_receiver(self._receiver_timer or 0.0))
            return
        self._do_receiver(self.receiver.tick(self.time.now, self.time.wall_ms))
        self._arm_receiver()

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


class _SenderEars:
    def __init__(self, world: LinkWorld, life: int) -> None:
        self._world, self._life = world, life

    def on_frames(self, frames: Sequence[Carried]) -> None:
        self._world.sender_heard(self._life, frames)

    def on_nobody(self, head: bytes) -> None:
        self._world.sender_returned(self._life, head)

    def on_closed(self, reason: str) -> None:
        self._world.sender_closed(self._life, reason)


class _ReceiverEars:
    def __init__(self, world: LinkWorld, life: int) -> None:
        self._world, self._life = world, life

    def on_frames(self, frames: Sequence[Carried]) -> None:
        self._world.receiver_heard(self._life, frames)

    def on_nobody(self, head: bytes) -> None:
        return

    def on_closed(self, reason: str) -> None:
        self._world.receiver_closed(self._life, reason)
