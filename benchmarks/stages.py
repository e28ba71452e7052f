"""Cost of a message to a node at each stage, without brokers, in microseconds.

    python -m benchmarks.stages [--rounds 200] [--size 1024]

For batches of 256 and of 45 messages. Medians over the rounds; what a stage waits for (sockets,
disks, other tasks) is not in it. Of three deliveries at two other sites, each node takes one
message off egress, sees two of its own coming round, and delivers two. Not in the sum: messages
for 100 of 500 shops in turn, each a batch of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from dedup.barrier import Barrier
from dedup.rocksdb_store import RocksdbStore
from federation.destinations import Addressing
from federation.mesh import IdentityRule
from relay.batches.batch import (
    EVERY_SITE,
    BatchHeader,
    BatchKind,
    BatchName,
    Flow,
    LoggedBatch,
    Place,
    Series,
)
from relay.batches.format import append_to_path, read_header, seal, verify_digest
from relay.batches.incarnation import VoidTable
from relay.batches.name_set import NameSet
from relay.batches.packed_entries import PackedBatch
from relay.bulk_amqp import Delivery
from relay.bulk_amqp.frame_reader import Deliveries, FrameReader
from relay.bulk_amqp.frame_writer import FrameWriter
from relay.delivery.chunk import delivered_row
from relay.delivery.chunk_builder import ChunkBuilder
from relay.delivery.context import DeliveryContext
from relay.delivery.deferred_batches import DeferredBatches
from relay.delivery.doubts import Doubts
from relay.delivery.flow_queue import Job
from relay.delivery.local_exchange import Outgoing
from relay.delivery.properties import DeliveryStamp
from relay.delivery.settlement import Point
from relay.delivery.stamped_messages import StampedMessages
from relay.ledger.batch_rows import packed_row
from relay.ledger.rows import Outcome, encode_row
from relay.packing.comeback.returned_prefix import ReturnedPrefix
from relay.packing.flow_packer import FlowPacker, Parcel
from relay.packing.intake import Intake
from relay.packing.packer_metrics import PackerMetrics
from relay.packing.packer_settings import PackedExchange, PackerSettings
from relay.state import node_state
from relay.state.flow_state import FlowState
from relay.state.node_state import Commit, NodeState

NOW = 1_700_000_000_000
EXCHANGE = PackedExchange("orders", "egress.orders", identity=IdentityRule())
SHOPS = replace(
    EXCHANGE,
    addressing=Addressing(
        "paris", (), (), tuple((f"s{n:03}", (f"store.s{n}.#",)) for n in range(500))
    ),
)
FLOW = Flow("paris", "orders", 0)


class Stages:
    """Each stage once a round, with the former one's output; `took` has seconds by stage."""

    def __init__(self, folder: Path, count: int, size: int) -> None:
        self.took: dict[str, list[float]] = {}
        self._count, self._size = count, size
        self._number = 0
        store = RocksdbStore(folder, node_state.TABLES, point_tables=node_state.POINT_TABLES)
        self.state = NodeState(store)
        self.state.begin(bytes(16))
        self._barrier = Barrier(store, 10**9, meta_table=node_state.STATE)
        self._reader, self._writer = FrameReader(131072), FrameWriter(1, 131072)
        self._stamp = DeliveryStamp("orders", ("paris", "tokyo"), "relay")
        self._context = cast(
            DeliveryContext,
            SimpleNamespace(
                settings=SimpleNamespace(cluster_id="tokyo", user="relay"),
                settled=NameSet(),
                voids=VoidTable(),
                mesh=SimpleNamespace(exchanges={}),
                clock_differences_ms={},
                now_ms=lambda: NOW,
                window_ms=10**9,
            ),
        )

    def _frames(self, messages: Sequence[Outgoing]) -> list[bytes] | None:
        if isinstance(messages, StampedMessages):
            return messages.frames("orders", 1, self._writer.largest)
        return [self._writer.publish([("orders", *m) for m in messages], mandatory=True)]

    def _time(self, stage: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        self.took.setdefault(stage, []).append(time.perf_counter() - began)
        return result

    def round(self) -> None:
        fresh = [_properties() for _ in range(self._count)]
        bodies = [os.urandom(16) * (self._size // 16) for _ in fresh]
        data = b"".join(map(_delivery, range(1, self._count + 1), fresh, bodies))
        events = self._time("parse frames", lambda: self._reader.feed(data))
        (deliveries,) = [event for event in events if isinstance(event, Deliveries)]
        (parcel,) = self._pack("take new", deliveries.messages)
        self._for_shops(deliveries.messages)
        ours = [self._stamp.apply(each, flagged=False) for each in fresh]
        data = b"".join(map(_delivery, range(1, self._count + 1), ours, bodies))
        (round_,) = [event for event in self._reader.feed(data) if isinstance(event, Deliveries)]
        self._pack("drop own coming round", round_.messages)
        header, batch = self._time("seal", lambda: seal(self._header(), parcel.entries))
        packed = PackedBatch(header, parcel.entries)
        self._time("packed row", lambda: encode_row(packed_row(packed, NOW)))
        received = self._time("receive", lambda: self._receive(batch))
        self._deliver(received)

    def _for_shops(self, messages: Sequence[Delivery]) -> None:
        addressed: list[Delivery] = [
            (tag, flag, exchange, b"store.s%d.price" % (5 * (tag % 100)), properties, body)
            for tag, flag, exchange, _, properties, body in messages
        ]
        parcels = self._pack("take for shops", addressed, SHOPS)
        self._time("seal for shops", lambda: [seal(self._header(), p.entries) for p in parcels])

    def _pack(
        self, stage: str, messages: Sequence[Delivery], exchange: PackedExchange = EXCHANGE
    ) -> list[Parcel]:
        sealed: list[Parcel] = []
        intake = Intake("orders", EXCHANGE.identity, ("relay",), os.urandom)
        settings = PackerSettings("paris", "r1", "relay", (EXCHANGE,), batch_bytes=1 << 30)
        packer = FlowPacker(
            exchange,
            settings,
            intake,
            ReturnedPrefix(()),
            sealed.append,
            lambda: NOW,
            PackerMetrics(),
        )
        self._time(stage, lambda: packer.take(messages))
        packer.seal()
        return sealed

    def _header(self) -> BatchHeader:
        self._number += 1
        name = BatchName(Series("paris", bytes(8), "orders", 0, EVERY_SITE), self._number)
        return BatchHeader(
            BatchKind.MESSAGES, name, self._number, (), "r1", 0, 0, 0, 0, NOW, NOW, ("paris",)
        )

    def _receive(self, data: bytes) -> LoggedBatch:
        read_header(data)
        verify_digest(data)
        data = append_to_path(data, "tokyo")
        header = read_header(data)
        return LoggedBatch(Place(self._number, header.name), header, data)

    def _deliver(self, batch: LoggedBatch) -> None:
        deferred = DeferredBatches(FLOW, self._context, Doubts(FLOW, self._context))
        builder = ChunkBuilder(FLOW, FlowState(), self._context, deferred)
        job = Job(Point(self._number, batch.place), batch, None)
        self._time("open, hash", lambda: builder.add(job))
        chunk = builder.take()
        judgement = self._time(
            "judge",
            lambda: self._barrier.judge(self, chunk.keys, chunk.hashes, chunk.places),
        )
        numbers = chunk.pending()
        _, messages = self._time("stamp", lambda: chunk.outgoing(numbers, NOW))
        self._time("write frames", lambda: self._frames(messages))
        chunk.outcomes = [Outcome.DELIVERED] * len(chunk)

        def save() -> None:
            commit = Commit()
            self._barrier.commit(judgement, commit.changes)
            commit.row(delivered_row(chunk, chunk.parts[0], 0, len(chunk), NOW))
            commit.flow(FLOW, FlowState(batch.place))
            self.state.write(commit)

        self._time("save", save)


def _properties() -> bytes:
    """Delivery mode 2 and a message ID."""
    return b"\x10\x80\x02\x24" + str(uuid.uuid4()).encode()


def _delivery(tag: int, properties: bytes, body: bytes) -> bytes:
    method = b"\0\x3c\0\x3c\x06c00001" + struct.pack(">QB", tag, 0) + b"\x06orders\x09order.new"
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties
    return b"".join(
        struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"
        for kind, payload in ((1, method), (2, header), (3, body))
    )


def run(count: int, rounds: int, size: int) -> dict[str, float]:
    """Microseconds a message by stage."""
    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(Path(folder), count, size)
        for _ in range(rounds):
            stages.round()
        stages.state.store.close()
    return {stage: statistics.median(took) / count * 1e6 for stage, took in stages.took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    big, small = (run(count, options.rounds, options.size) for count in (256, 45))
    print(f"{'us a message, in batches of':28} {256:>6} {45:>6}")
    for stage in big:
        print(f"{stage:28} {big[stage]:6.2f} {small[stage]:6.2f}")
    sums = [sum(took for stage, took in m.items() if "shops" not in stage) for m in (big, small)]
    print(f"{'sum':28} {sums[0]:6.2f} {sums[1]:6.2f}")


if __name__ == "__main__":
    main()
