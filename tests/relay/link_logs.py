"""The logs at the two ends of a link as lists, and real batches to put into them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relay.batches.batch import (
    EVERY_SITE,
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    LoggedBatch,
    Place,
    Series,
)
from relay.batches.format import seal
from relay.batches.name_set import NameSet
from tests.relay.timed_calls import VirtualTime

PARIS, TOKYO = "paris", "tokyo"


def make_batch(
    sequence: int,
    *,
    size: int = 100,
    incarnation: bytes = b"incarn-1",
    path: Sequence[str] = (PARIS,),
    destinations: tuple[str, ...] = EVERY_SITE,
    kind: BatchKind = BatchKind.MESSAGES,
    revision: str = "rev",
    seed: int = 0,
    format: int = 1,
) -> tuple[BatchHeader, bytes]:
    """A real batch of one message whose body cannot be compressed."""
    body = random.Random(seed * 1_000_003 + sequence).randbytes(size)
    series = Series(path[0], incarnation, "orders", 0, destinations)
    header = BatchHeader(
        kind,
        BatchName(series, sequence),
        sequence,
        (),
        revision,
        0,
        0,
        sequence,
        0,
        1,
        1,
        tuple(path),
        format=format,
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
