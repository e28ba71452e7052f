"""Bytes of a batch, on the WAN and in every site's log. Big-endian throughout.

::

    prefix    4  magic "ISB" and the format's number (1 or 2)
              2  bytes of the path section
              4  bytes of the header section
    path         the cluster IDs that have had it: per ID 1 length, the ID (UTF-8)
    header   16  digest: blake2b-128 of all that follows it, and of the prefix's magic
              1  kind
              1  flags: 1 = has a fragment
              8  incarnation
              8  sequence in the series
              8  sequence in the incarnation
              1  lane
              1  number of predecessors, then each: 8 incarnation, 8 end (signed)
              4  entries
              8  bytes of the entries before compression
              8  running total of messages
              8  running total of bytes
              8  first publish time, ms      8  last publish time, ms
              4+4  fragment: piece, pieces (only if flagged)
              1  length, origin             1  length, exchange
              1  length, revision
              2  number of destinations, then each: 1 length, cluster ID
              in format 2, to the header's end, fields: 1 number, 2 length, value
    block        one zstd frame over the columns:
              n x 16  identities
              n x 1   flags: 1 = doubtful
              n x 4   publish time, ms after the first
              n x 8   deadlines, ms (0 = none)
              n x 4   key lengths, n x 4 property lengths, n x 4 body lengths
              the keys, the properties, the bodies, one after the other

The path is not under the digest because every site appends to it; the receiver judges whether a
path may be believed (the last ID must be the neighbour that the broker vouches for). Columns,
because a single `struct` call then packs a field of 256 entries, and like compresses with like.

Two formats are read and written, the newest and the one before (`known_formats`). Additions of
later versions to format 2 are fields. A node passes over an unknown field below 128, which goes on
with the batch, since sites on the way do not open batches; a node must not take a batch with an
unknown field of 128 or above. Field 1 is the origin's signature (`signature`); no other has a
meaning yet. Magic and format number stand at the same place in every format to come.

Drawing, encoder and decoder stand together in one long file: apart, one of them would change alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Protocol

import zstandard

from federation.mesh import NEWEST_BATCH_FORMAT, OLDEST_BATCH_FORMAT
from relay.batches.batch import (
    MAX_ENTRIES,
    BatchHead,
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    Fragment,
    HeaderField,
    Predecessor,
    Series,
    make_entry,
)
from relay.batches.block_parts import MOST_APART, join_apart
from relay.batches.packed_entries import PackedEntries

_MAGIC = b"ISB"
_MAGICS = {
    _MAGIC + bytes([number]): number
    for number in range(OLDEST_BATCH_FORMAT, NEWEST_BATCH_FORMAT + 1)
}
_FORMAT_AT = len(_MAGIC)
_MAGIC_BYTES = _FORMAT_AT + 1
_WITH_FIELDS = 2
_MUST_KNOW = 128
"""Number of the first field that changes the batch's meaning."""
_PREFIX = struct.Struct(">4sHI")
_DIGEST_BYTES = 16
_FIXED = struct.Struct(">BB8sQQBB")
_PREDECESSOR = struct.Struct(">8sq")
_COUNTS = struct.Struct(">IQQQQQ")
_FRAGMENT = struct.Struct(">II")
_FIELD = struct.Struct(">BH")
_HAS_FRAGMENT = 1
_DOUBTFUL = 1

MAX_BLOCK_BYTES = 32 * 1024 * 1024
"""Most bytes of an opened block; a block that claims more is refused before it is opened."""
MAX_PATH_SITES = 4096
MAX_PATH_BYTES = 0xFFFF
MAX_HEADER_BYTES = 1024 * 1024
"""Most bytes of a header: its names become objects of some 60 bytes each, however short they are.
"""
MAX_FIELDS = 256
MAX_PIECES = 1024
"""Most pieces of a message; the broker takes no message above 512 MiB."""
MAX_NUMBER = (1 << 63) - 1
"""Largest number that ledgers can hold: no counter ever comes so far."""
MAX_TIME_MS = 253_402_300_799_999
"""Last millisecond of the year 9999, the latest time that readers of a ledger know."""

_LEVEL = 1
"""zstd's level: 3 saves some 5 % of the bytes of JSON and costs twice the CPU."""


class BadBatch(Exception):
    """Bytes are no batch that this node can read. `reason` names the defect."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnknownFormat(Exception):
    """The batch is sound, but of a format that this node does not read: no `BadBatch`.

    A node that meets such a batch takes nothing from there on and reports the format: the batch is
    never quarantined, never passed by.
    """

    def __init__(
        self, format_: int, newest: int = NEWEST_BATCH_FORMAT, field: int | None = None
    ) -> None:
        what = f"batch format {format_}" + (f" with field {field}" if field is not None else "")
        oldest = OLDEST_BATCH_FORMAT
        reads = f"{oldest} to {newest}" if newest > oldest else f"only {newest}"
        besides = " without that field" if field is not None else ""
        self.reason = f"{what}, and this version of Isthmus reads {reads}{besides}"
        super().__init__(self.reason)


# Reused contexts: a node calls them from its event loop only.
_compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
_decompressor = zstandard.ZstdDecompressor()


class Signs(Protocol):
    """Signer of batches for their origin."""

    def sign(self, header: bytes, block: bytes) -> HeaderField: ...


def seal(
    header: BatchHeader,
    entries: PackedEntries,
    signer: Signs | None = None,
    *,
    body_apart: bool = False,
) -> tuple[BatchHeader, bytes]:
    """Encode a packer's batch; return the header with counts and digest filled in, and the bytes.

    The running totals of `header` are those *before* this batch. A signed batch needs format 2.
    `body_apart`: see `block_parts`; for a single entry.
    """
    columns = encode_columns(entries) if isinstance(entries, Sequence) else entries.columns()
    header = replace(
        header,
        entry_count=len(entries),
        byte_count=len(columns),
        total_messages=header.total_messages + len(entries),
        total_bytes=header.total_bytes + len(columns),
    )
    block, covered = _block_of(columns, entries if body_apart else ()), _encode_covered(header)
    if signer is not None:
        signature = signer.sign(_magic_of(header) + covered, block)
        header = replace(header, fields=(*header.fields, signature))
        covered += _encode_field(signature)
    data = _assemble(header, covered, block)
    return replace(header, digest=_digest_in(data)), data


def _block_of(columns: bytes, entries: PackedEntries) -> bytes:
    """Compress the columns; where `entries` is one entry, its body apart if what is before the body
    may stand apart.
    """
    if isinstance(entries, Sequence) and len(entries) == 1:
        body = entries[0].body
        before = len(columns) - len(body)
        if body and before <= MOST_APART:
            return join_apart(columns[:before], body, _compressor)
    return _compressor.compress(columns)


_KINDS_OF_PIECES = bytes([BatchKind.FRAGMENT]), bytes([BatchKind.REPAIR])


def may_be_piece(data: bytes) -> bool:
    """True if a sound batch is of a kind that pieces of big messages have; cheaper than
    `read_header`.
    """
    kind_at = _PREFIX.size + int.from_bytes(data[4:6], "big") + _DIGEST_BYTES
    return data[kind_at : kind_at + 1] in _KINDS_OF_PIECES


def block_at(data: bytes | memoryview) -> int:
    """Offset of the block in a batch. Raises BadBatch."""
    path_bytes, header_bytes = _sections(data)
    return _PREFIX.size + path_bytes + header_bytes


def read_header(data: bytes | memoryview, newest: int = NEWEST_BATCH_FORMAT) -> BatchHeader:
    """Read the header, without opening the block or checking the digest (`verify_digest` does).

    Raises BadBatch; UnknownFormat also for formats above `newest`.
    """
    path_bytes, header_bytes = _sections(data)
    format_ = data[_FORMAT_AT]
    if format_ > newest:
        raise UnknownFormat(format_, newest)
    start = _PREFIX.size
    try:
        path = _read_path(bytes(data[start : start + path_bytes]))
        return _read_fixed(
            bytes(data[start + path_bytes : start + path_bytes + header_bytes]), path, format_
        )
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise BadBatch(f"header cannot be read: {error}") from error


def verify_digest(data: bytes | memoryview) -> None:
    """Raise BadBatch unless all but the path is as the origin wrote it."""
    path_bytes, _ = _sections(data)
    start = _PREFIX.size + path_bytes
    covered = memoryview(data)[start + _DIGEST_BYTES :]
    if _digest(bytes(data[:_MAGIC_BYTES]), covered) != bytes(data[start : start + _DIGEST_BYTES]):
        raise BadBatch("digest does not match: damaged on the way")


def signed_parts(data: bytes | memoryview, header: BatchHeader) -> tuple[bytes, memoryview]:
    """Return the parts under the signature in the header's last field: the magic and the header
    before the field, and the block. `header` is the batch's own. Raises BadBatch if there is no
    field.
    """
    if not header.fields:
        raise BadBatch("no field that could be a signature")
    path_bytes, header_bytes = _sections(data)
    start = _PREFIX.size + path_bytes
    end = start + header_bytes
    view = memoryview(data)
    covered = view[start + _DIGEST_BYTES : end - _FIELD.size - len(header.fields[-1].value)]
    return b"".join((view[:_MAGIC_BYTES], covered)), view[end:]


def append_to_path(data: bytes | memoryview, cluster_id: str) -> bytes:
    """Return the batch with a cluster ID added at the end of its path.

    Raises BadBatch for other bytes, and if the path has no room.
    """
    path_bytes, header_bytes = _sections(data)
    end = _PREFIX.size + path_bytes
    added = _short(cluster_id)
    view = memoryview(data)
    if path_bytes + len(added) > MAX_PATH_BYTES:
        raise BadBatch(f"its path has no room for {cluster_id!r}")
    prefix = _PREFIX.pack(bytes(view[:_MAGIC_BYTES]), path_bytes + len(added), header_bytes)
    return b"".join((prefix, view[_PREFIX.size : end], added, view[end:]))


def decode_entries(data: bytes | memoryview) -> list[Entry]:
    """Messages in the order of packing. Raises BadBatch."""
    header = read_header(data)
    columns = open_columns(data, header)
    return split_columns(columns, header.entry_count, header.first_published_ms)


def open_columns(data: bytes | memoryview, header: BatchHeader) -> bytes:
    """Return the opened block of the batch with this header. Raises BadBatch."""
    if isinstance(data, BatchHead):
        raise BadBatch(data.reason)
    path_bytes, header_bytes = _sections(data)
    block = memoryview(data)[_PREFIX.size + path_bytes + header_bytes :]
    columns = _open_block(block)
    if len(columns) != header.byte_count:
        raise BadBatch(f"{len(columns)} bytes of entries where the header says {header.byte_count}")
    return columns


def encode_columns(entries: Sequence[Entry]) -> bytes:
    """Return the block of these entries before compression: at most MAX_ENTRIES of them."""
    n = len(entries)
    if n > MAX_ENTRIES:
        raise ValueError(f"a batch holds at most {MAX_ENTRIES} entries, not {n}")
    if not n:
        return b""
    identities, keys, properties, bodies, published, deadlines, doubtful = zip(
        *entries, strict=True
    )
    first = min(published)
    lengths = struct.Struct(f">{n}I")
    return b"".join(
        [
            *identities,
            bytes(doubtful),  # True is 1, _DOUBTFUL
            lengths.pack(*[each - first for each in published]),
            struct.pack(f">{n}Q", *deadlines),
            lengths.pack(*map(len, keys)),
            lengths.pack(*map(len, properties)),
            lengths.pack(*map(len, bodies)),
            *keys,
            *properties,
            *bodies,
        ]
    )


def split_columns(columns: bytes, n: int, first: int) -> list[Entry]:
    """Return the `n` entries of an opened block, the first published at `first` (ms since 1970).
    Raises BadBatch.
    """
    if n > MAX_ENTRIES:
        raise BadBatch(f"{n} entries, a batch holds at most {MAX_ENTRIES}")
    fixed = n * (16 + 1 + 4 + 8 + 4 + 4 + 4)
    if len(columns) < fixed:
        raise BadBatch(f"{len(columns)} bytes cannot hold {n} entries")
    at = 16 * n
    flags = columns[at : at + n]
    at += n
    words = struct.Struct(f">{n}I")
    published = words.unpack_from(columns, at)
    at += 4 * n
    deadlines = struct.unpack_from(f">{n}Q", columns, at)
    at += 8 * n
    key_lengths = words.unpack_from(columns, at)
    property_lengths = words.unpack_from(columns, at + 4 * n)
    body_lengths = words.unpack_from(columns, at + 8 * n)
    keys_at = at + 12 * n
    properties_at = keys_at + sum(key_lengths)
    bodies_at = properties_at + sum(property_lengths)
    if bodies_at + sum(body_lengths) != len(columns):
        raise BadBatch("lengths of the entries do not add up to the block")
    return list(
        map(
            make_entry,
            zip(
                [columns[at : at + 16] for at in range(0, 16 * n, 16)],
                _cut(columns, keys_at, key_lengths),
                _cut(columns, properties_at, property_lengths),
                _cut(columns, bodies_at, body_lengths),
                [first + after for after in published],
                deadlines,
                [flag & _DOUBTFUL != 0 for flag in flags],
                strict=True,
            ),
        )
    )


def _cut(columns: bytes, at: int, lengths: Sequence[int]) -> list[bytes]:
    """Cut consecutive pieces of these lengths, from `at` on."""
    pieces = []
    for length in lengths:
        pieces.append(columns[at : at + length])
        at += length
    return pieces


def _assemble(header: BatchHeader, covered: bytes, block: bytes) -> bytes:
    path = b"".join(map(_short, header.path))
    magic = _magic_of(header)
    prefix = _PREFIX.pack(magic, len(path), _DIGEST_BYTES + len(covered))
    return b"".join((prefix, path, _digest(magic, covered, block), covered, block))


def _magic_of(header: BatchHeader) -> bytes:
    magic = _MAGIC + bytes([header.format])
    if magic not in _MAGICS or (header.fields and header.format < _WITH_FIELDS):
        raise ValueError(f"format {header.format} cannot be written so: {header.fields}")
    return magic


def _encode_covered(h: BatchHeader) -> bytes:
    series, sequence = h.name
    parts: list[bytes] = [
        _FIXED.pack(
            h.kind,
            _HAS_FRAGMENT if h.fragment else 0,
            series.incarnation,
            sequence,
            h.incarnation_sequence,
            series.lane,
            len(h.predecessors),
        )
    ]
    parts += [_PREDECESSOR.pack(*p) for p in h.predecessors]
    parts.append(
        _COUNTS.pack(
            h.entry_count,
            h.byte_count,
            h.total_messages,
            h.total_bytes,
            h.first_published_ms,
            h.last_published_ms,
        )
    )
    if h.fragment:
        parts.append(_FRAGMENT.pack(*h.fragment))
    parts += [_short(series.origin), _short(series.exchange), _short(h.revision)]
    parts.append(len(series.destinations).to_bytes(2, "big"))
    parts += map(_short, series.destinations)
    parts += map(_encode_field, h.fields)
    return b"".join(parts)


def _encode_field(field: HeaderField) -> bytes:
    return _FIELD.pack(field.number, len(field.value)) + field.value


def _read_fixed(section: bytes, path: tuple[str, ...], format_: int) -> BatchHeader:
    digest = section[:_DIGEST_BYTES]
    at = _DIGEST_BYTES
    kind, flags, incarnation, sequence, whole, lane, predecessor_count = _FIXED.unpack_from(
        section, at
    )
    at += _FIXED.size
    predecessors = []
    for _ in range(predecessor_count):
        predecessors.append(Predecessor(*_PREDECESSOR.unpack_from(section, at)))
        at += _PREDECESSOR.size
    if any(predecessor.end < -1 for predecessor in predecessors):
        raise BadBatch("a predecessor that ended before it began")
    entry_count, byte_count, messages, total, first, last = _COUNTS.unpack_from(section, at)
    at += _COUNTS.size
    fragment = None
    if flags & _HAS_FRAGMENT:
        fragment = Fragment(*_FRAGMENT.unpack_from(section, at))
        at += _FRAGMENT.size
        if fragment.piece >= fragment.pieces or fragment.pieces > MAX_PIECES:
            raise BadBatch(f"fragment {fragment.piece} of {fragment.pieces}")
    origin, at = _read_short(section, at)
    exchange, at = _read_short(section, at)
    revision, at = _read_short(section, at)
    destination_count = int.from_bytes(section[at : at + 2], "big")
    at += 2
    destinations = []
    for _ in range(destination_count):
        destination, at = _read_short(section, at)
        destinations.append(destination)
    if at > len(section):
        raise BadBatch("the destinations are cut off")
    fields: tuple[HeaderField, ...] = ()
    if at != len(section):
        if format_ < _WITH_FIELDS:
            raise BadBatch(f"header has {len(section) - at} bytes more than it says")
        fields = _read_fields(section, at, format_)
    if not path or path[0] != origin:
        raise BadBatch("the path does not start with the origin")
    if entry_count > MAX_ENTRIES or byte_count > MAX_BLOCK_BYTES:
        raise BadBatch(f"claims {entry_count} entries of {byte_count} bytes")
    if max(sequence, whole, messages, total) > MAX_NUMBER or max(first, last) > MAX_TIME_MS:
        raise BadBatch("claims a number or a time beyond all counting")
    series = Series(origin, incarnation, exchange, lane, tuple(destinations))
    return BatchHeader(
        BatchKind(kind),
        BatchName(series, sequence),
        whole,
        tuple(predecessors),
        revision,
        entry_count,
        byte_count,
        messages,
        total,
        first,
        last,
        path,
        fragment,
        digest,
        format_,
        fields,
    )


def _read_fields(section: bytes, at: int, format_: int) -> tuple[HeaderField, ...]:
    fields: list[HeaderField] = []
    while at < len(section):
        number, length = _FIELD.unpack_from(section, at)
        at += _FIELD.size
        if at + length > len(section):
            raise BadBatch("a field is cut off")
        if number >= _MUST_KNOW:
            raise UnknownFormat(format_, field=number)
        if len(fields) == MAX_FIELDS:
            raise BadBatch(f"more than {MAX_FIELDS} fields")
        fields.append(HeaderField(number, section[at : at + length]))
        at += length
    return tuple(fields)


def _read_path(section: bytes) -> tuple[str, ...]:
    at, path = 0, []
    while at < len(section):
        cluster_id, at = _read_short(section, at)
        path.append(cluster_id)
    if len(path) > MAX_PATH_SITES:
        raise BadBatch(f"a path of {len(path)} sites")
    return tuple(path)


def _sections(data: bytes | memoryview) -> tuple[int, int]:
    if len(data) < _PREFIX.size:
        raise BadBatch(f"{len(data)} bytes are too few for a batch")
    magic, path_bytes, header_bytes = _PREFIX.unpack_from(data)
    if magic not in _MAGICS:
        if not magic.startswith(_MAGIC):
            raise BadBatch("not a batch: no magic")
        format_ = magic[_FORMAT_AT]
        raise UnknownFormat(format_) if format_ else BadBatch("format 0")
    if _PREFIX.size + path_bytes + header_bytes > len(data) or header_bytes < _DIGEST_BYTES:
        raise BadBatch("cut off: the sections are longer than the data")
    if header_bytes > MAX_HEADER_BYTES:
        raise BadBatch(f"a header of {header_bytes} bytes")
    return path_bytes, header_bytes


def _open_block(block: memoryview) -> bytes:
    try:
        parameters: Any = zstandard.get_frame_parameters(block)
        if not 0 <= parameters.content_size <= MAX_BLOCK_BYTES:
            raise BadBatch(f"a block of {parameters.content_size} bytes")
        return _decompressor.decompress(block, max_output_size=MAX_BLOCK_BYTES)
    except zstandard.ZstdError as error:
        raise BadBatch(f"block cannot be opened: {error}") from error


def _digest(magic: bytes, *parts: bytes | memoryview) -> bytes:
    digest = blake2b(magic, digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _digest_in(data: bytes) -> bytes:
    start = _PREFIX.size + int.from_bytes(data[4:6], "big")
    return data[start : start + _DIGEST_BYTES]


def _short(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 255:
        raise ValueError(f"longer than 255 bytes: {text[:40]}...")
    return bytes([len(raw)]) + raw


def _read_short(section: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + section[at]
    if end > len(section):
        raise BadBatch("a name is cut off")
    return section[at + 1 : end].decode(), end


def total_bytes(entries: Iterable[Entry]) -> int:
    """Bytes of the entries before compression: the measure by which a packer seals."""
    return sum(41 + len(e.routing_key) + len(e.properties) + len(e.body) for e in entries)
