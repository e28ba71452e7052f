"""Sums of rows tell ledgers apart that counts do not, and add up however batches were split."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from relay.batches.batch import BatchKind
from relay.ledger.file import LedgerFile, write_file
from relay.ledger.fingerprint import CONTENT_SEED, SEEDS, Fingerprint, fingerprints
from relay.ledger.rows import CONFLICT, Event, LedgerRow, Outcome, Stage, encode_row

MASK = 2**64 - 1
Message = tuple[bytes, bytes, int]
"""Identity, content hash, outcome."""


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def hashed(seed: int, identity: bytes) -> int:
    first, last = int.from_bytes(identity[:8]), int.from_bytes(identity[8:])
    return mix((mix((first + seed) & MASK) + last) & MASK)


def signed(number: int) -> int:
    return int.from_bytes((number & MASK).to_bytes(8), signed=True)


def by_the_docstring(messages: Sequence[Message]) -> Fingerprint:
    """As another program would work it out, one message after the other."""
    counted = [m for m in messages if m[2] & 0x0F in (Outcome.DELIVERED, Outcome.OWN)]
    return Fingerprint(
        len(counted),
        signed(sum(hashed(SEEDS[0], identity) for identity, _, _ in counted)),
        signed(sum(hashed(SEEDS[1], identity) for identity, _, _ in counted)),
        signed(
            sum(
                mix((hashed(CONTENT_SEED, identity) + int.from_bytes(content)) & MASK)
                for identity, content, _ in counted
            )
        ),
    )


def row_of(messages: Sequence[Message], stage: Stage = Stage.DELIVERED) -> LedgerRow:
    return LedgerRow(
        stage,
        5,
        kind=1,
        origin="paris",
        count=len(messages),
        identities=b"".join(m[0] for m in messages),
        contents=b"" if stage is Stage.PACKED else b"".join(m[1] for m in messages),
        outcomes=bytes(m[2] for m in messages),
    )


def messages_of(chance: random.Random, count: int) -> list[Message]:
    outcomes = [Outcome.DELIVERED] * 8 + [Outcome.DUPLICATE, Outcome.DELIVERED | CONFLICT]
    return [
        (chance.randbytes(16), chance.randbytes(8), chance.choice(outcomes)) for _ in range(count)
    ]


def total(rows: Sequence[LedgerRow]) -> Fingerprint:
    prints = [made for made in fingerprints(rows) if made is not None]
    return Fingerprint(
        sum(one.messages for one in prints),
        signed(sum(one.identity_1 for one in prints)),
        signed(sum(one.identity_2 for one in prints)),
        signed(sum(one.content or 0 for one in prints)),
    )


def test_another_program_finds_the_same_numbers() -> None:
    one = row_of([(bytes(range(16)), bytes(range(8)), Outcome.DELIVERED)])
    assert fingerprints([one]) == [
        Fingerprint(1, 4073766621494886122, 2099497620881606090, -4960452241617115393)
    ], "these numbers stand in files: never change them"


@pytest.mark.parametrize("seed", range(10))
def test_each_row_has_the_sums_that_the_docstring_says(seed: int) -> None:
    chance = random.Random(seed)
    batches = [messages_of(chance, chance.choice([1, 2, 45, 256])) for _ in range(20)]
    idle = LedgerRow(Stage.DELIVERED, 5, Event.IDLE)
    rows = [row_of(batch) for batch in batches]
    assert fingerprints([idle, *rows, idle]) == [None, *map(by_the_docstring, batches), None]


@pytest.mark.parametrize("seed", range(10))
def test_the_sums_of_a_split_batch_add_up_in_any_order(seed: int) -> None:
    chance = random.Random(seed)
    messages = messages_of(chance, 256)
    whole = total([row_of(messages)])
    chance.shuffle(messages)
    cuts = sorted(chance.sample(range(1, 256), 5))
    parts = [messages[a:b] for a, b in zip([0, *cuts], [*cuts, 256], strict=True)]
    assert total([row_of(part) for part in parts]) == whole


@pytest.mark.parametrize("seed", range(10))
def test_faults_that_counts_do_not_show_change_the_sums(seed: int) -> None:
    chance = random.Random(seed)
    good = [(i, c, Outcome.DELIVERED) for i, c, _ in messages_of(chance, 256)]
    lost, doubled, other = chance.sample(range(256), 3)
    swapped = [*good]
    swapped[other] = (chance.randbytes(16), *good[other][1:])
    one_for_another = [*good]
    one_for_another[lost] = good[doubled]
    twice = [*good]
    twice[lost] = twice[other] = good[doubled]
    whole = total([row_of(good)])
    for bad in (swapped, one_for_another, twice):
        made = total([row_of(bad)])
        assert made.messages == whole.messages
        assert made.identity_1 != whole.identity_1
        assert made.identity_2 != whole.identity_2
    altered = [*good]
    altered[other] = (good[other][0], chance.randbytes(8), good[other][2])
    exchanged = [*good]
    exchanged[lost] = (good[lost][0], good[doubled][1], good[lost][2])
    exchanged[doubled] = (good[doubled][0], good[lost][1], good[doubled][2])
    for bad in (altered, exchanged):
        made = total([row_of(bad)])
        assert made[:3] == whole[:3]
        assert made.content != whole.content


def test_what_is_delivered_everywhere_has_the_sums_of_what_was_packed() -> None:
    messages = [(i, c, Outcome.DELIVERED) for i, c, _ in messages_of(random.Random(1), 100)]
    packed = row_of([(i, c, Outcome.SENT) for i, c, _ in messages], Stage.PACKED)
    own = row_of([(i, c, Outcome.OWN) for i, c, _ in messages])
    (of_packed, of_delivered, of_own) = fingerprints([packed, row_of(messages), own])
    assert of_packed is not None
    assert of_delivered is not None
    assert of_packed[:3] == of_delivered[:3]
    assert of_packed.content is None
    assert of_own == of_delivered


def test_what_was_not_delivered_is_not_in_the_sums() -> None:
    chance = random.Random(2)
    good = [(i, c, Outcome.DELIVERED) for i, c, _ in messages_of(chance, 3)]
    others = [
        (chance.randbytes(16), chance.randbytes(8), outcome)
        for outcome in Outcome
        if outcome not in (Outcome.DELIVERED, Outcome.OWN)
    ]
    assert total([row_of([*others, *good])]) == total([row_of(good)])
    assert total([row_of(others)]) == Fingerprint(0, 0, 0, 0)


def test_a_message_in_pieces_is_counted_by_its_first() -> None:
    piece = row_of([(bytes(16), bytes(8), Outcome.SENT)], Stage.PACKED)
    prints = fingerprints([replace(piece, fragment=n) for n in range(3)])
    whole = row_of([(bytes(16), bytes(8), Outcome.DELIVERED)])
    (delivered,) = fingerprints([replace(whole, fragment=2)])
    assert prints[1:] == [Fingerprint(0, 0, 0, None)] * 2
    assert delivered is not None
    assert prints[0] == (*delivered[:3], None)


def test_the_files_have_the_sums(tmp_path: Path) -> None:
    chance = random.Random(3)
    batches = [messages_of(chance, 5) for _ in range(300)]
    idle = LedgerRow(Stage.DELIVERED, 5, Event.IDLE)
    rows = [encode_row(row_of(batch)) for batch in batches] + [encode_row(idle)]
    file = LedgerFile(str(tmp_path / "a.parquet"), "tokyo", "ab", 0, len(rows))
    write_file(file, iter(rows))
    columns = ["delivered_count", "identity_sum_1", "identity_sum_2", "content_sum"]
    table = pq.read_table(file.path, columns=columns)
    expected = [tuple(by_the_docstring(batch)) for batch in batches]
    assert [tuple(row.values()) for row in table.to_pylist()] == [*expected, (None,) * 4]


def test_a_node_does_not_load_numpy() -> None:
    code = "import sys; import relay.node.process; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_own_counts_at_its_origin_only_and_delivered_everywhere_else() -> None:
    message = (bytes(16), bytes(8))
    delivered, own = (row_of([(*message, one)]) for one in (Outcome.DELIVERED, Outcome.OWN))
    here = [replace(one, path=("paris",)) for one in (delivered, own)]
    away = [replace(one, path=("paris", "tokyo")) for one in (delivered, own)]
    repaired = [replace(one, kind=BatchKind.REPAIR) for one in here]
    counts = [made and made.messages for made in fingerprints([*here, *away, *repaired])]
    assert counts == [0, 1, 1, 0, 1, 0]
