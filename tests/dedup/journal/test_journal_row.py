"""Bytes of a journal's row: what goes in comes out, and nothing else does."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from dedup.journal.journal import JournalDamaged, JournalTooNew
from dedup.journal.journal_row import ROW_FORMAT, Writes, decode_row, encode_row
from dedup.store import Changes


def some_writes(chance: random.Random) -> Writes:
    writes = Writes()
    for _ in range(chance.randrange(6)):
        changes = Changes()
        for _ in range(chance.randrange(5)):
            changes.put(chance.choice("ab"), chance.randbytes(chance.randrange(4)), b"v" * 3)
            changes.delete(chance.choice("ab"), chance.randbytes(2))
            changes.delete_range("a", chance.randbytes(1), chance.randbytes(2))
        writes.add(changes)
        if chance.random() < 0.2:
            writes.clear("b")
    return writes


@pytest.mark.parametrize("seed", range(50))
def test_writes_come_back_as_they_were(seed: int) -> None:
    writes = some_writes(random.Random(seed))
    again = decode_row(encode_row(writes))
    assert again.cleared == writes.cleared
    assert again.ranges == writes.ranges
    assert {t: k for t, k in again.tables.items() if k} == {
        t: k for t, k in writes.tables.items() if k
    }


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_row_is_refused_and_nothing_else_is_raised(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(encode_row(some_writes(chance)))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    with pytest.raises(JournalDamaged):
        decode_row(bytes(data))
    body = bytes(data[4 : chance.randrange(4, len(data) + 1)])
    try:
        decode_row(crc32(body).to_bytes(4, "little") + body)
    except (JournalDamaged, JournalTooNew):
        return


def test_a_row_of_a_newer_format_says_what_to_do() -> None:
    body = (ROW_FORMAT + 1).to_bytes(4, "little")
    with pytest.raises(JournalTooNew, match="start the newer version"):
        decode_row(crc32(body).to_bytes(4, "little") + body)
