"""The native core and its twins in Python give the same results, byte for byte.

Where no native core was built, the twins are compared with themselves: a machine without a compiler
is no fault.
"""

from __future__ import annotations

import random
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from federation.mesh import IdentityKind, IdentityRule
from relay import core
from relay.batches.batch import Entry
from relay.batches.format import BadBatch, encode_columns, split_columns
from relay.batches.opened_batch import OpenedBatch, OpenedEntries
from relay.batches.packed_entries import identities_of, published_of
from relay.bulk_amqp.errors import MalformedProperties
from relay.bulk_amqp.frame_reader import Broken, Deliveries, FrameReader, Method
from relay.bulk_amqp.frame_writer import FrameWriter
from relay.delivery.properties import DeliveryStamp, remaining_ms
from relay.delivery.stamped_messages import StampedMessages
from relay.packing.comeback.returned_prefix import ReturnedPrefix, ReturnVerdict
from relay.packing.flow_packer import FlowPacker, Parcel
from relay.packing.intake import Intake
from relay.packing.packer_metrics import PackerMetrics
from relay.packing.packer_settings import PackedExchange, PackerSettings
from tests.contracts.odd_deliveries import FRAME_MAX, START_MS, OddDeliveries, delivery
from tests.message_properties import properties

TOP = Path(__file__).parents[2]
CORES = (None, core.native)
SEEDS = [seed if seed < 25 else pytest.param(seed, marks=pytest.mark.long) for seed in range(400)]
RULES = [
    IdentityRule(IdentityKind.UUID),
    IdentityRule(IdentityKind.MESSAGE_ID),
    IdentityRule(IdentityKind.HEADER, "order"),
    IdentityRule(IdentityKind.CONTENT),
    IdentityRule(IdentityKind.NONE),
]
UUID = uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")


class Side:
    """Choice of one core within a block."""

    def __init__(self, native: Any, patch: pytest.MonkeyPatch) -> None:
        self.native = native
        self._patch = patch

    def __enter__(self) -> Side:
        self._patch.setattr(core, "native", self.native)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_cut_anywhere_is_read_as_the_same_events(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddDeliveries(seed)
    stream = odd.stream(odd.chance.randrange(1, 40))
    if odd.happens(0.3):
        stream = odd.damaged(stream, 3)
    pieces = []
    while stream:
        size = odd.chance.choice([40, 3_000, 300_000])
        cut = odd.chance.randrange(1, size)
        pieces.append(stream[:cut])
        stream = stream[cut:]
    found = []
    for native in CORES:
        with Side(native, monkeypatch):
            reader = FrameReader(FRAME_MAX)
            found.append([plain(event) for piece in pieces for event in reader.feed(piece)])
    assert found[0] == found[1]


def plain(event: object) -> object:
    if isinstance(event, Deliveries):
        return event.channel, event.consumer_tag, [tuple(message) for message in event.messages]
    if isinstance(event, Method):
        return event.channel, event.frame.name, dict(event.frame)
    return str(event.error) if isinstance(event, Broken) else repr(event)


@pytest.mark.parametrize("seed", SEEDS)
def test_deliveries_are_packed_into_the_same_batches(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddDeliveries(seed)
    rule = odd.chance.choice(RULES)
    comes_round = odd.happens(0.7)
    bounds = {"batch_entries": odd.chance.choice([5, 256]), "batch_bytes": 200_000}
    reads = [
        b"".join(odd.delivery(tag) for tag in range(first, first + 60))
        for first in range(1, 1 + 60 * odd.chance.randrange(1, 5), 60)
    ]
    found = []
    for native in CORES:
        with Side(native, monkeypatch):
            found.append(packed(reads, rule, seed, bounds, comes_round=comes_round))
    assert found[0] == found[1]


class AllLogged(ReturnedPrefix):
    """Comparison that finds in the log whatever is handed out again."""

    def late(self, digest: bytes, properties: bytes) -> ReturnVerdict:
        return ReturnVerdict.LOGGED


def packed(
    reads: list[bytes], rule: IdentityRule, seed: int, bounds: dict[str, int], *, comes_round: bool
) -> tuple[Any, ...]:
    """All that may be seen of a packer that has taken these reads."""
    exchange = PackedExchange("orders", "egress", identity=rule, comes_round=comes_round)
    settings = PackerSettings("paris", "r1", "relay", (exchange,), **bounds)
    metrics = PackerMetrics()
    sealed: list[Parcel] = []
    intake = Intake(
        "orders", rule, ("relay",), random.Random(seed).randbytes, comes_round=comes_round
    )
    packer = FlowPacker(
        exchange, settings, intake, AllLogged(()), sealed.append, lambda: START_MS, metrics
    )
    reader = FrameReader(FRAME_MAX)
    states: list[object] = []
    for read in reads:
        for event in reader.feed(read):
            if not isinstance(event, Deliveries):  # broken: a header without flags, cut up
                states.append(plain(event))
                continue
            packer.take(event.messages)
            states.append(
                (packer.in_hand_bytes, packer.acks.outstanding, packer.oldest_published_ms)
            )
    packer.seal()
    parcels = [
        (
            parcel.size,
            parcel.big,
            parcel.stretch.last_tag,
            columns_of(parcel.entries),
            identities_of(parcel.entries),
            published_of(parcel.entries),
        )
        for parcel in sealed
    ]
    return parcels, states, metrics.own, metrics.malformed, metrics.doubtful


@pytest.mark.parametrize(
    "message_id",
    [
        str(UUID),
        str(UUID).upper(),
        UUID.urn,
        UUID.urn.upper(),
        f"Urn:uUid:{UUID}",
        "",
        UUID.hex,
        "urn:uuid:",
        f"urn:uuid:{UUID.hex}",
        f"urn:uuid:{UUID.hex}----",
        f"{UUID.urn} ",
        UUID.urn[:-1],
        f"{UUID.urn[:-1]}g",
        f"{UUID.urn[:-2]}é",
        f"urn:uuid:{UUID.urn}",
        f"urn:guid:{UUID}",
        f"uuid:{UUID}",
        f"ſrn:uuid{UUID}",
    ],
)
def test_both_take_the_same_message_ids_for_uuids(
    message_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = delivery(1, properties(message_id=message_id.encode()), b"body")
    is_uuid = message_id.lower() in (str(UUID), UUID.urn)
    for native in CORES:
        with Side(native, monkeypatch):
            ((*_, identities, _),), *_ = packed([read], IdentityRule(), 1, {}, comes_round=False)
        assert (identities == UUID.bytes) is is_uuid


def columns_of(entries: Any) -> bytes:
    if isinstance(entries, list):
        return encode_columns(entries)
    columns: bytes = entries.columns()
    return columns


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_is_opened_as_the_same_messages(seed: int) -> None:
    odd = OddDeliveries(seed)
    count = odd.chance.randrange(0, 40)
    columns = encode_columns(odd.entries(count))
    if columns and odd.happens(0.4):
        columns = odd.damaged(columns[: odd.chance.randrange(1, len(columns) + 1)], 2)
        count = odd.chance.choice([count, 300])
    found = []
    for native in CORES:
        opened = open_by(native, columns, count)
        found.append(opened if isinstance(opened, str) else all_of(opened))
    assert found[0] == found[1]


def open_by(native: Any, columns: bytes, count: int) -> OpenedBatch | str:
    """Open the columns, or return the reason why not."""
    try:
        if native is None:
            return OpenedEntries(split_columns(columns, count, START_MS))
        opened: OpenedBatch = native.OpenedBatch(columns, count, START_MS)
    except (BadBatch, ValueError) as error:
        return str(error)
    return opened


def all_of(opened: OpenedBatch) -> object:
    count = len(opened)
    begin = count // 3
    return (
        [tuple(opened.entry(number)) for number in range(count)],
        opened.keys(b"scope...", begin, count),
        [content[:8] for content in opened.contents(begin, count)],
        opened.identities(begin, count),
        opened.published(begin, count),
        opened.doubtful(),
        opened.expired(0, count, START_MS),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_are_stamped_and_framed_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddDeliveries(seed)
    entries = [entry for entry in odd.entries(30) if entry.deadline_ms != START_MS]
    if odd.happens(0.7):
        entries = [entry for entry in entries if can_be_stamped(entry)]
    with Side(core.native, monkeypatch):
        stamp = DeliveryStamp("orders", ("paris", "tokyo"), "relay")
        opened = open_by(core.native, encode_columns(entries), len(entries))
        assert not isinstance(opened, str)
        run = opened.stamped(0, len(entries), stamp.native, START_MS)
    if run is None:
        assert core.native is None or not all(map(can_be_stamped, entries))
        return
    messages = [("orders.in", e.routing_key, stamped(stamp, e), e.body) for e in entries]
    made = StampedMessages([run])
    assert [("orders.in", *message) for message in made] == messages
    writer = FrameWriter(3, FRAME_MAX)
    frames = made.frames("orders.in", 3, writer.largest)
    assert frames is not None
    assert b"".join(frames) == writer.publish(messages, mandatory=True)


def stamped(stamp: DeliveryStamp, entry: Entry) -> bytes:
    left_ms = remaining_ms(entry.deadline_ms, START_MS) if entry.deadline_ms else None
    return stamp.apply(entry.properties, flagged=False, left_ms=left_ms)


def can_be_stamped(entry: Entry) -> bool:
    try:
        stamped(DeliveryStamp("orders", ("paris", "tokyo"), "relay"), entry)
    except MalformedProperties:
        return False
    return True


def test_what_amqp_cannot_carry_has_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    with Side(core.native, monkeypatch):
        stamp = DeliveryStamp("orders", ("paris",), "relay")
        if stamp.native is None:
            return
        entry = Entry(bytes(16), b"k" * 256, b"\x00\x00", b"", START_MS)
        opened = open_by(core.native, encode_columns([entry]), 1)
        assert not isinstance(opened, str)
        made = StampedMessages([opened.stamped(0, 1, stamp.native, START_MS)])
        assert made.frames("orders", 1, FRAME_MAX - 8) is None


@pytest.mark.parametrize(
    ("wanted", "says"), [("fast", "there are auto, native and pure"), ("native", "make setup")]
)
def test_a_core_that_is_not_there_is_an_error_with_a_mend(
    wanted: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "MODULE", "isthmus_core_that_is_not_there")
    with pytest.raises(core.CoreUnusable, match=says):
        core.load(wanted)


def test_without_a_core_auto_is_pure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MODULE", "isthmus_core_that_is_not_there")
    assert core.load("auto") is core.load("pure") is None


def test_a_program_that_asks_for_what_is_not_there_ends_with_2_and_says_why() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import relay.core"],
        env={core.VARIABLE: "fast", "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert ended.stderr == "isthmus: ISTHMUS_CORE=fast: there are auto, native and pure\n"
