"""What the fuzzer begins with: valid inputs of each decoder, and some that are lies."""

from __future__ import annotations

from federation.mesh_file.reference import BEFORE
from relay.group.datagram import (
    NO_FRAME,
    FramePiece,
    GroupMessage,
    GroupPulse,
    Nack,
    encode_body,
)
from relay.group.pieces import cut, parity
from relay.group.publisher import encode_frame
from relay.links.wire import (
    HEAD_BYTES,
    Ack,
    Cause,
    Have,
    Measured,
    Welcome,
    encode_ack,
    encode_batch_frame,
    encode_have,
    encode_members_frame,
    encode_over,
    encode_pulse,
    encode_refused,
    encode_welcome,
)
from tests.federation.meshes import LINE_OF_THREE, TRIANGLE
from tests.hostile import test_hostile_batches as batches
from tests.hostile import test_hostile_decoders as others
from tests.hostile.decoders import MEMBER, NONCE, OWN, RUN, SIGNED
from tests.log_batches import batch
from tests.message_properties import properties
from tests.signed_batches import public_key, signed_batch

_NAMES = others.some_names().encode()
_URN = b"urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"


def _in_session(*frames: bytes) -> bytes:
    """As `decoders.link` takes them: version and kind, length, what follows the head."""
    out = b""
    for frame in frames:
        said = frame[HEAD_BYTES:]
        out += frame[:2] + len(said).to_bytes(2, "big") + said
    return out


def _links() -> list[bytes]:
    frames = [
        encode_members_frame(2, NONCE, RUN, "r1", b"[]"),
        encode_pulse(2, NONCE, RUN, 0, 2, Measured(-3, 4)),
    ]
    for number in range(1, 4):
        header, data = signed_batch(number, origin="lyon")
        frames.append(encode_batch_frame(2, NONCE, RUN, number, data, header.path, False, True))
    header, data = batch(4, origin="lyon")
    frames.append(encode_batch_frame(2, NONCE, RUN, 4, data, header.path, True, False))
    answers = [
        encode_welcome(Welcome(NONCE, RUN, 1, 2, b"log", _NAMES, version=2)),
        encode_ack(2, Ack(NONCE, RUN, 1, 2, 3, 4)),
        encode_refused(2, NONCE, RUN, 1, "why"),
        encode_have(3, Have(NONCE, RUN, True, _NAMES)),
        encode_over(2, NONCE, RUN, Cause.GAP, 1, "why"),
    ]
    return [*frames, *answers, _in_session(*frames), _in_session(*answers)]


def _groups() -> list[bytes]:
    """Frames whole in one piece and in three, a repair, pulses and NACKs, one by one and as one."""
    frames = [encode_frame(before, name * 30) for before, name in (("", b"a"), ("a", b"b"))]
    pieces = cut(frames[1], 3)
    messages: list[GroupMessage] = [
        GroupPulse(NO_FRAME, 1, ""),
        FramePiece(MEMBER, 0, 0, 1, len(frames[0]), frames[0]),
        GroupPulse(0, 1, "a"),
        *(FramePiece(MEMBER, 1, n, 3, len(frames[1]), pieces[n]) for n in (0, 2)),
        FramePiece(OWN, 1, 0, 1, len(frames[0]), frames[0]),
        FramePiece(MEMBER, 1, 3, 3, len(frames[1]), parity(pieces, [3])[0]),
        Nack(OWN, ((0, 1), (1, 255))),
        Nack(MEMBER, ((0, 1), (7, 255))),
    ]
    sent = []
    for message in messages:
        kind, body = encode_body(message, MEMBER)
        sent.append(bytes([kind]) + len(body).to_bytes(2) + body)
    return [*sent, b"".join(sent)]


def _blocks() -> list[bytes]:
    """Two bytes for the number of entries, then their columns, of messages as brokers give them."""
    found = []
    for count in (0, 1, 3):
        columns = bytes(16 * count) + bytes(count) + bytes(4 * count) + bytes(8 * count)
        lengths = [(3).to_bytes(4, "big"), len(others.PROPERTIES).to_bytes(4, "big")]
        columns += lengths[0] * count + lengths[1] * count + (4).to_bytes(4, "big") * count
        columns += b"key" * count + others.PROPERTIES * count + b"body" * count
        found.append(count.to_bytes(2, "big") + columns)
    return found


def _files() -> list[bytes]:
    signed = f"signing: ed25519\nbatch_format: 2\nsites: {{a: {{public_key: {public_key('a')}}}}}\n"
    example = BEFORE.partition("```yaml\n")[2].partition("```")[0]
    table = 'site,city\noslo,Oslo\nrome,"Ro,me"\n# no\n'
    return [one.encode() for one in (TRIANGLE, LINE_OF_THREE, example, signed, table)]


def seeds(name: str) -> list[bytes]:
    """Of that decoder."""
    whole = [decoder.valid for decoder in others.DECODERS.values()]
    found: dict[str, list[bytes]] = {
        "batch": [
            batches.VALID,
            batch(1)[1],
            *(signed_batch(n, origin="lyon")[1] for n in range(2)),
        ],
        "block": _blocks(),
        "link": _links(),
        "names": [one for one in whole if len(one) > 4]
        + [data for _, data in others.LIES.values()][:6],
        "properties": [others.PROPERTIES, b"\0\0", properties(message_id=_URN)],
        "amqp": [others.DECODERS["amqp"].valid],
        "stream": [b"\0\1" + b"\0\0\0\x0b" + b"\x00\x53\x75\xa0\x06abcdef", bytes(60)],
        "fragments": [bytes((0, 0, n, 3, n, 9)) + bytes((1, 1, n, 2, n, 9)) for n in range(3)],
        "mesh_file": _files(),
        "group": _groups(),
    }
    assert SIGNED.is_asked
    return found[name]
