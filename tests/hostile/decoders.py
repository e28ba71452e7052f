"""Every decoder of bytes from outside, as the fuzzer and the tests of its corpus call it.

Each takes any bytes, and raises nothing: what a decoder declares is caught here, and anything else
is a finding. Where a check (a digest, a CRC, a compression) would stop nearly all that is made up,
it is put right first, as whoever lies can do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

import zstandard

from federation.mesh import IdentityKind, IdentityRule
from federation.mesh_file import Severity, parse_mesh
from federation.mesh_file.templates import parse_table
from relay.batches import varint
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Fragment, Series
from relay.batches.format import (
    BadBatch,
    UnknownFormat,
    append_to_path,
    decode_entries,
    read_header,
    seal,
    verify_digest,
)
from relay.batches.fragments import FragmentAssembly, FragmentMismatch
from relay.batches.mesh_headers import repaired_of, with_repaired
from relay.batches.name_set import BadNameSet, NameSet, get_series
from relay.batches.opened_batch import open_batch
from relay.batches.signature import OriginUnknown, authenticity
from relay.bulk_amqp import content_header
from relay.bulk_amqp.errors import BulkAmqpError, MalformedProperties
from relay.bulk_amqp.frame_reader import Deliveries, FrameReader
from relay.delivery.properties import DeliveryStamp
from relay.delivery.put_aside import put_aside
from relay.group.datagram import (
    BadDatagram,
    DatagramOpener,
    DatagramSealer,
    GroupStream,
    new_epoch,
    site_id,
)
from relay.group.member import GroupMember
from relay.group.settings import GroupSettings
from relay.ledger.batch_rows import linked_row
from relay.ledger.members import BadMembers, decode_members
from relay.ledger.rows import BadLedgerRow, Stage, decode_row, encode_row
from relay.links.receiver.actions import Append, LogFacts
from relay.links.receiver.machine import LinkReceiver
from relay.links.sender.machine import LinkSender
from relay.links.sender.parts import SenderParts
from relay.links.transport.link_end import TransportStatus
from relay.links.wire import NONCE_BYTES, BadFrame, decode_frame, encode_ask
from relay.log.rabbit.stream_frames import BadChunk, confirmed_ids, read_deliver, unwrap
from relay.log.recent_names import RecentNames
from relay.packing.comeback.returned_prefix import ReturnedPrefix
from relay.packing.flow_packer import FlowPacker
from relay.packing.intake import Intake, headers_and_user, message_id_of
from relay.packing.packer_metrics import PackerMetrics
from relay.packing.packer_settings import PackedExchange, PackerSettings
from tests.federation.meshes import mesh_of
from tests.relay.link_world import TO_TOKYO
from tests.signed_batches import public_key

OWN, MEMBER = (GroupStream(site_id(site), new_epoch(1, bytes(8))) for site in ("paris", "lyon"))
"""Streams of this site, and of a member of its group."""
CORPUS = Path(__file__).parent / "corpus"
NONCE, RUN = b"n" * NONCE_BYTES, b"r" * 8
SIGNED = authenticity(
    mesh_of(
        "mesh: acme\nbatch_format: 2\nsigning: ed25519\ntopology: complete\n"
        "exchanges: [{name: orders}]\nsites:\n"
        + "".join(
            f"  {site}: {{public_key: {public_key(site)}, private_key: env:K}}\n"
            for site in ("paris", "lyon")
        )
    )
)
_compress = zstandard.ZstdCompressor(level=1).compress
_NAME = BatchName(Series("lyon", b"incarnat", "orders", 0, ()), 7)
_BARE = BatchHeader(BatchKind.MESSAGES, _NAME, 7, (), "r1", 0, 0, 0, 0, 9, 9, ("lyon",), format=2)


def _with_digest(data: bytes) -> bytes:
    """The batch with the digest that belongs to it, if there is room for one."""
    header_at = 10 + int.from_bytes(data[4:6], "big")
    if len(data) < header_at + 16:
        return data
    digest = blake2b(data[:4], digest_size=16)
    digest.update(data[header_at + 16 :])
    return data[:header_at] + digest.digest() + data[header_at + 16 :]


def batch(data: bytes) -> None:
    """As it is, and with the digest that belongs to it."""
    for sent in (data, _with_digest(data)):
        with suppress(BadBatch, UnknownFormat):
            append_to_path(sent, "me")
        with suppress(BadBatch, UnknownFormat):
            decode_entries(sent)
        with suppress(BadBatch, UnknownFormat, OriginUnknown):
            header = read_header(sent)
            verify_digest(sent)
            # What is believed of it goes into the ledger.
            row = linked_row(header, Stage.LINKED_IN, "paris", 1)
            assert decode_row(encode_row(row)) == row
            SIGNED.check(header, sent)


def block(data: bytes) -> None:
    """The entries of a batch, compressed: their number is said by the first two bytes."""
    if len(data) < 2:
        return
    claimed, columns = int.from_bytes(data[:2], "big"), data[2:]
    _, whole = seal(_BARE, [])
    head = bytearray(whole[: len(whole) - len(_compress(b""))])
    # Where the number and the bytes of the entries stand, in a header without predecessors.
    at = 10 + int.from_bytes(head[4:6], "big") + 16 + 28
    head[at : at + 12] = claimed.to_bytes(4, "big") + len(columns).to_bytes(8, "big")
    sent = bytes(head) + _compress(columns)
    with suppress(BadBatch):
        entries = decode_entries(sent)
        assert len(entries) == claimed
        for entry in entries:
            every_look(entry.properties)
        opened = open_batch(sent, read_header(sent))
        assert [opened.entry(number) for number in range(claimed)] == entries
        assert len(opened.contents(0, claimed)) == claimed
        stamp = DeliveryStamp("orders", ("paris",), "relay")
        run = None if stamp.native is None else opened.stamped(0, claimed, stamp.native, 1)
        assert run is None or len(run) == claimed


def _checked(frame: bytes) -> bytes:
    return frame[:2] + crc32(frame[6:], crc32(frame[:2])).to_bytes(4, "big") + frame[6:]


def _frames(data: bytes) -> Iterator[bytes]:
    """Frames of a version, kind, nonce and run that may be; what is in them is `data`'s."""
    at = 0
    while at + 4 <= len(data):
        version, kind, size = data[at], data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        said = data[at + 4 : at + 4 + size]
        at += 4 + size
        yield _checked(bytes([version, kind]) + bytes(4) + NONCE + RUN + said)


def asking_sender() -> LinkSender:
    """One that has asked `tokyo`, at 100 s, and was not answered yet."""
    sender = LinkSender(
        forwarding=TO_TOKYO,
        receiver_user="tokyo",
        position=None,
        parts=SenderParts(random=random.Random(1).random, random_bytes=lambda count: NONCE[:count]),
    )
    sender.connected(0.0, TransportStatus(0, 0, False))
    sender.tick(100.0, 1, TransportStatus(0, 0, False))
    return sender


def link(data: bytes) -> None:
    """What comes to either end of a link: frames one by one, then as a session."""
    for sent in (data, _checked(data)):
        with suppress(BadFrame):
            decode_frame(sent)
    receiver = LinkReceiver(own="paris", neighbour="lyon", sender_user="lyon", check=SIGNED.check)
    receiver.log_opened(LogFacts(RUN, b"log", NameSet().encode), 0.0)
    receiver.connected(0.0)
    receiver.frame("lyon", encode_ask(NONCE, 5), 0.0, 1)
    sender = asking_sender()
    now = 100.0
    for frame in _frames(data):
        now += 0.1
        for action in receiver.frame("lyon", frame, now, int(now * 1000)):
            if isinstance(action, Append):
                receiver.appended(action.session, action.number, False, now, int(now * 1000))
        receiver.tick(now, int(now * 1000))
        sender.frame("tokyo", frame, now)
        sender.tick(now, int(now * 1000), TransportStatus(0, 0, False))


def names(data: bytes) -> None:
    """Sets of names, and what they are made of."""
    with suppress(BadNameSet):
        names = NameSet.decode(data)
        assert NameSet.decode(names.encode()).encode() == names.encode()
    with suppress(varint.BadVarint):
        get_series(data, 0)
    with suppress(varint.BadVarint):
        RecentNames().load([data], [])
    with suppress(BadMembers):
        decode_members(data)
    with suppress(BadLedgerRow):
        decode_row(data)


def every_look(properties: bytes) -> None:
    """All that is ever read of a message's properties."""
    looks: tuple[Callable[[bytes], object], ...] = (
        content_header.check,
        content_header.headers,
        content_header.canonical,
        message_id_of,
        headers_and_user,
        repaired_of,
        lambda raw: with_repaired(raw, "lyon"),
        lambda raw: content_header.header(raw, b"x-death"),
        lambda raw: content_header.without_headers(raw, (b"x-mesh-",), (b"x-death",)),
        lambda raw: DeliveryStamp("orders", ("lyon",), "relay").apply(raw, flagged=True),
        lambda raw: DeliveryStamp("orders", ("lyon",), "relay").apply(raw, flagged=False),
    )
    for look in looks:
        with suppress(MalformedProperties):
            look(properties)


def properties(data: bytes) -> None:
    """A message's properties and headers, by whoever looks at them."""
    every_look(data)
    for kind in IdentityKind:
        header = "x-mesh-path" if kind is IdentityKind.HEADER else ""
        intake = Intake(
            "orders", IdentityRule(kind, header), ("relay",), random.Random(1).randbytes
        )
        cleaned = intake.clean(data)
        if cleaned is not None:
            made, _ = intake.entry(b"key", cleaned, b"body", 1_700_000_000_000)
            seal(_BARE, [made])
    put_aside((1, False, "", b"", data, b"body"))


def amqp(data: bytes) -> None:
    """Read a broker's bytes in pieces, as a socket gives them, and in one."""
    for size in (50, max(len(data), 1)):
        reader, packer = FrameReader(131_072), _packer()
        with suppress(BulkAmqpError):
            for at in range(0, len(data), size):
                for event in reader.feed(data[at : at + size]):
                    if isinstance(event, Deliveries):
                        packer.take(event.messages)
        packer.seal()


def _packer() -> FlowPacker:
    exchange = PackedExchange("orders", "egress")
    return FlowPacker(
        exchange,
        PackerSettings("paris", "r1", "relay", (exchange,)),
        Intake("orders", exchange.identity, ("relay",), random.Random(1).randbytes),
        ReturnedPrefix(()),
        lambda parcel: None,
        lambda: 1_700_000_000_000,
        PackerMetrics(),
    )


def stream(data: bytes) -> None:
    """What a stream hands out: a chunk whose check is right, and a record."""
    unwrap(0, data)
    for sent in (data, _chunk(data)):
        with suppress(BadChunk):
            for record in read_deliver(memoryview(sent)).records:
                assert record.offset >= 0
    if len(data) >= 5 and len(data) >= 5 + 8 * int.from_bytes(data[1:5], "big"):
        confirmed_ids(data)


def _chunk(data: bytes) -> bytes:
    """A chunk of as many entries and records as the first bytes say, and the rest in it."""
    entries, rest = int.from_bytes(data[:2], "big"), data[2:]
    head = b"\0\x50\0" + entries.to_bytes(2, "big") + entries.to_bytes(4, "big")
    head += bytes(8) + bytes(8) + (5).to_bytes(8, "big") + crc32(rest).to_bytes(4, "big")
    return head + len(rest).to_bytes(4, "big") + bytes(8) + rest


def fragments(data: bytes) -> None:
    """Pieces of messages in any order: five bytes say which, the sixth how long it is."""
    assembly = FragmentAssembly()
    held = 0
    for at in range(0, len(data) - 5, 6):
        which, run, piece, pieces, sequence, size = data[at : at + 6]
        series = _NAME.series._replace(incarnation=bytes([run % 3]) * 8)
        header = _BARE.__class__(
            *(BatchKind.FRAGMENT, BatchName(series, sequence), which, (), "r1", 1, 0, 0, 0, 9, 9),
            ("lyon",),
            Fragment(piece, pieces) if pieces else None,
        )
        with suppress(FragmentMismatch):
            assembly.abandon_passed(header, (_ended, _goes_on)[which % 2])
            whole = assembly.add(header, Entry(bytes(16), b"key", b"\0\0", bytes(size), 9))
            if whole is not None:
                assert len(whole.body) <= held + size
        held += size
        assert 0 <= assembly.bytes_held <= held


def _ended(first: BatchName) -> bool:
    return True


def _goes_on(first: BatchName) -> bool:
    return False


def mesh_file(data: bytes) -> None:
    """What an operator writes, or a file that is none."""
    reading = parse_mesh(data, "mesh.yaml", Path("/nowhere"))
    is_wrong = any(problem.severity is Severity.ERROR for problem in reading.problems)
    assert (reading.mesh is None) == is_wrong, list(map(str, reading.problems))
    parse_table(data, "branches.csv", lambda *told: None)


class _Names:
    """Log of a site that takes batches which are text, of a kind."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def accept(self, publisher: bytes, batch: bytes) -> str | None:
        return batch[:1].decode() if batch[:1].isalpha() else None

    def has(self, name: str) -> bool:
        return name in self.names


def group(data: bytes) -> None:
    """Take what a hostile member of a group says: datagrams of a kind, a length and a body."""
    log = _Names()
    settings = GroupSettings(rate=1e6, piece_bytes=64, held_bytes=4000, held_in_all=8000)
    member = GroupMember(
        own=OWN,
        replayers=[OWN.publisher],
        settings=settings,
        log=log,
        random=random.Random(1).random,
        before="",
        now=0.0,
        counters=Counter(),
    )
    member.publish("a", b"a" * 30)
    sealer = DatagramSealer(bytes(32), bytes(32), MEMBER)
    opener = DatagramOpener(bytes(32), [bytes(32)], [OWN.publisher, MEMBER.publisher])
    at, now = 0, 0.0
    while at + 3 <= len(data):
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 3], "big")
        body = data[at + 3 : at + 3 + size]
        at, now = at + 3 + size, now + 0.01
        appends = []
        with suppress(BadDatagram):
            appends = member.received(opener.open(sealer.seal_body(kind, body)), now)
        turn = member.tick(now, int(now * 1000))
        for append in (*appends, *turn.append):
            log.names.add(append.name)
        assert member.receiver.held_bytes <= settings.held_in_all
        assert len(turn.send) < 1000
        member.wakeup(now)


DECODERS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (batch, block, link, names, properties, amqp, stream, fragments, mesh_file, group)
}


def corpus(name: str) -> list[bytes]:
    """What the fuzzer has found worth keeping for that decoder, its findings among it."""
    file = CORPUS / f"{name}.hex"
    if not file.exists():
        return []
    lines = file.read_text().splitlines()
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]
