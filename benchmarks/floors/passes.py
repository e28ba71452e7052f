"""Measured passes: into a queue, and out again, one after the other or both at once."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

from benchmarks.floors.amqp import Consuming, Publishing
from benchmarks.floors.amqp10 import Publishing10
from benchmarks.floors.site import Site
from benchmarks.floors.streams import Appending, Reading

KINDS: Mapping[str, Mapping[str, str | int]] = {
    "quorum": {"x-queue-type": "quorum"},
    "classic v1": {"x-queue-version": 1},
    "classic v2": {"x-queue-version": 2},
    "stream": {"x-queue-type": "stream"},
}
_COMPRESSED = 512
"""Bytes of a message of 1 KiB in a batch."""


class Work(Protocol):
    """Half of a pass: `count` messages into or out of a queue or stream."""

    def run(self, site: Site, kind: str, count: int) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True)
class _Nothing:
    """Half of a pass without arrivals."""

    async def run(self, site: Site, kind: str, count: int) -> None:
        return


@dataclass(frozen=True)
class Pass:
    """`fed` and `drained` name the figures; with `both` there is one, of the two at once.

    `each`: messages that one record stands for. `more`: times as many as others, where one costs
    so little that the clock of CPU is too coarse.
    """

    kind: str
    feed: Work
    drain: Work
    fed: str
    drained: str
    both: bool = False
    each: int = 1
    more: int = 1


_FEEDS: Mapping[str, Publishing] = {
    "topic, window 4000, writes of 256": Publishing(),
    "window 256, writes of 64": Publishing(window=256, group=64),
    "window 1000, writes of 250": Publishing(window=1000, group=250),
    "window 256, writes of 256 (lock-step)": Publishing(window=256),
    "window 1000, writes of 1000 (lock-step)": Publishing(window=1000, group=1000),
    "window 4000, writes of 1": Publishing(group=1),
    "window 4000, writes of 16": Publishing(group=16),
    "window 4000, writes of 1000": Publishing(group=1000),
    "fanout": Publishing(exchange="fanout"),
    "default exchange": Publishing(exchange=""),
    "mandatory": Publishing(mandatory=True),
    "mandatory, a deliverer's properties": Publishing(mandatory=True, stamp="all"),
    "a user ID": Publishing(stamp="user_id"),
    "a cluster ID": Publishing(stamp="cluster_id"),
    "a deliverer's two headers": Publishing(stamp="headers"),
}
_DRAINS: Mapping[str, Consuming] = {
    "prefetch 2000, ack 250": Consuming(),
    "prefetch 250, ack 100": Consuming(250, 100),
    "prefetch 1000, ack 250": Consuming(1000, 250),
    "prefetch 5000, ack 250": Consuming(5000, 250),
    "prefetch 2000, ack 1": Consuming(ack=1),
    "prefetch 2000, ack 100": Consuming(ack=100),
    "prefetch 2000, ack 500": Consuming(ack=500),
    "prefetch 2000, ack 1000": Consuming(ack=1000),
}
_BOTH: Mapping[str, tuple[Publishing, Consuming]] = {
    "as the floor: window 4000, prefetch 2000, ack 250": (Publishing(), Consuming()),
    "ack 1": (Publishing(), Consuming(ack=1)),
    "ack 100": (Publishing(), Consuming(ack=100)),
    "ack 1000": (Publishing(), Consuming(ack=1000)),
    "prefetch 250, ack 100": (Publishing(), Consuming(250, 100)),
    "lock-step 256": (Publishing(window=256), Consuming()),
    "lock-step 1000": (Publishing(window=1000, group=1000), Consuming()),
    "writes of 1": (Publishing(group=1), Consuming()),
    "a user ID": (Publishing(stamp="user_id"), Consuming()),
    "a deliverer's two headers": (Publishing(stamp="headers"), Consuming()),
    "mandatory, a deliverer's properties": (Publishing(mandatory=True, stamp="all"), Consuming()),
}


def passes(classics: tuple[str, ...], *, has_amqp10: bool) -> Iterator[Pass]:
    """Yield the passes of a broker with these kinds of classic queues; `has_amqp10`: AMQP 1.0 built
    in, not as a plugin.
    """
    plain = next(iter(_DRAINS)), Consuming()
    fed = next(iter(_FEEDS))
    for feed, drain in zip_longest(_FEEDS.items(), _DRAINS.items(), fillvalue=plain):
        assert isinstance(feed[1], Publishing)
        yield Pass("quorum", feed[1], drain[1], str(feed[0]), str(drain[0]))
    nowhere = Publishing(exchange="nowhere")
    yield Pass("quorum", nowhere, _Nothing(), "nowhere: an exchange without a queue", "", both=True)
    if has_amqp10:
        for kind in ("quorum", *classics):
            yield Pass(kind, Publishing10(), Consuming(), "AMQP 1.0", "came by AMQP 1.0")
        yield Pass("quorum", Publishing10(), Consuming(), "AMQP 1.0 in, 0.9.1 out", "", both=True)
    for kind in classics:
        yield Pass(kind, Publishing(), Consuming(), fed, "ack 250")
        yield Pass(kind, Publishing(), Consuming(ack=1000), fed, "ack 1000")
    by_amqp = Consuming(is_stream=True)
    yield Pass("stream", Publishing(), Reading(), "AMQP 0.9.1", "stream protocol, 3 chunks", more=2)
    yield Pass("stream", Publishing(), Reading(1), "AMQP 0.9.1", "stream protocol, 1 chunk", more=2)
    yield Pass("stream", Publishing(), by_amqp, "AMQP 0.9.1", "AMQP 0.9.1, ack 250")
    for name, (publishing, consuming) in _BOTH.items():
        yield Pass("quorum", publishing, consuming, name, "", both=True)
    for kind in classics:
        yield Pass(kind, Publishing(), Consuming(), "ack 250", "", both=True)
    yield Pass("stream", Publishing(), Reading(), "AMQP in, stream protocol out", "", both=True)
    yield Pass("stream", Publishing(), by_amqp, "AMQP in, AMQP out", "", both=True)
    yield from _to_streams(by_amqp)


def _to_streams(by_amqp: Consuming) -> Iterator[Pass]:
    """Yield the stream protocol's passes: single messages, packed entries, a relay's batches."""
    for records in (16, 256):
        feed = Appending(records=records, window=4000 // records)
        read = f"messages appended {records} a frame: stream protocol"
        yield Pass("stream", feed, Reading(), f"append, {records} a frame", read, more=3)
    packed, told = Appending(packed=True), "append, packed by 256"
    yield Pass("stream", packed, Reading(), told, "packed by 256: stream protocol", more=6)
    yield Pass("stream", packed, by_amqp, told, "packed by 256: AMQP 0.9.1, ack 250")
    yield Pass("stream", packed, Reading(), told + ", stream protocol out", "", both=True, more=6)
    for messages in (512, 256, 40):
        size = messages * _COMPRESSED
        feed = Appending(records=1, size=size, window=max(4, 4_000_000 // size))
        name = f"batch of {size // 1024} KiB"
        yield Pass("stream", feed, Reading(), name, name, each=messages, more=8)
