"""The last messages of each exchange that the log has."""

from __future__ import annotations

from collections.abc import Sequence

from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Fragment, Series
from relay.batches.format import seal
from relay.batches.fragments import split
from relay.packing.comeback.logged_tail import LoggedTail, TailSearch
from relay.packing.comeback.returned_prefix import PREFETCH, TailEntry, message_digest

I1, I2 = b"incarna1", b"incarna2"
ORDERS = "orders"


def entry(body: bytes, deadline_ms: int = 0) -> Entry:
    return Entry(b"i" * 16, b"key", b"\0\0", body, 1, deadline_ms)


def batch(
    sequence: int,
    *bodies: bytes,
    incarnation: bytes = I1,
    exchange: str = "orders",
    deadline_ms: int = 0,
) -> tuple[BatchHeader, bytes]:
    return sealed(
        sequence, [entry(body, deadline_ms) for body in bodies], incarnation, exchange, None
    )


def sealed(
    sequence: int,
    entries: Sequence[Entry],
    incarnation: bytes,
    exchange: str,
    fragment: Fragment | None,
) -> tuple[BatchHeader, bytes]:
    kind = BatchKind.FRAGMENT if fragment else BatchKind.MESSAGES
    name = BatchName(Series("paris", incarnation, exchange, 0, ()), sequence)
    return seal(
        BatchHeader(kind, name, sequence, (), "r", 0, 0, 0, 0, 1, 1, ("paris",), fragment), entries
    )


def digests(*bodies: bytes, may_expire: bool = False) -> list[TailEntry]:
    return [
        TailEntry(
            message_digest(b"key", b"\0\0", body), may_expire, is_named=True, properties=b"\0\0"
        )
        for body in bodies
    ]


def test_the_tail_has_the_logged_messages_in_order_by_exchange() -> None:
    tail = LoggedTail()
    tail.add(*batch(0, b"a", b"b"))
    tail.add(*batch(1, b"x", exchange="prices"))
    tail.add(*batch(2, b"c", deadline_ms=5))
    assert tail.entries(ORDERS) == digests(b"a", b"b") + digests(b"c", may_expire=True)
    assert tail.entries("prices") == digests(b"x")
    assert tail.entries("none") == []
    last = tail.last(ORDERS)
    assert last is not None
    assert last.sequence == 2


def test_the_tail_keeps_as_many_messages_as_can_come_back() -> None:
    tail = LoggedTail()
    bodies = [b"%d" % n for n in range(PREFETCH + 300)]
    for number in range(0, len(bodies), 100):
        tail.add(*batch(number, *bodies[number : number + 100]))
    kept = tail.entries(ORDERS)
    assert PREFETCH <= len(kept) < PREFETCH + 100
    assert kept == digests(*bodies)[-len(kept) :]


def test_a_message_in_pieces_is_one_message_once_complete() -> None:
    tail = LoggedTail()
    body = bytes(range(256)) * 10_000
    pieces = list(split(entry(body)))
    for number, (fragment, piece) in enumerate(pieces):
        assert tail.entries(ORDERS) == []
        tail.add(*sealed(number, [piece], I1, "orders", fragment))
    assert tail.entries(ORDERS) == digests(body)


def test_pieces_whose_first_ones_were_not_read_are_none() -> None:
    tail = LoggedTail()
    pieces = list(split(entry(bytes(2_000_000))))
    for number, (fragment, piece) in enumerate(pieces[1:], 1):
        tail.add(*sealed(number, [piece], I1, "orders", fragment))
    tail.add(*batch(9, b"a"))
    assert tail.entries(ORDERS) == digests(b"a")


def test_a_message_that_was_left_in_pieces_is_none() -> None:
    tail = LoggedTail()
    body = bytes(2_000_000)
    fragment, piece = next(split(entry(body)))
    tail.add(*sealed(0, [piece], I1, "orders", fragment))
    for number, (whole, one) in enumerate(split(entry(body))):
        tail.add(*sealed(number, [one], I2, "orders", whole))
    assert tail.entries(ORDERS) == digests(body)


def test_void_batches_take_no_place_when_looking_for_where_to_begin() -> None:
    search = TailSearch()
    assert search.needed(lambda *one: True) == {}
    header, _ = batch(0, b"valid")
    search.take(100, header)
    for number in range(1, 30):
        header, _ = batch(number, *[b"late"] * 256)
        search.take(100 + number, header)
    assert search.needed(lambda incarnation, sequence: True) == {ORDERS: {*range(122, 130)}}
    assert search.needed(lambda incarnation, sequence: sequence < 1) == {ORDERS: {100}}
    other, _ = batch(0, b"x", exchange="prices", incarnation=I2)
    search.take(90, other)
    assert search.needed(lambda incarnation, sequence: True) == {
        ORDERS: {*range(122, 130)},
        "prices": {90},
    }


def test_messages_after_the_last_that_may_be_acknowledged_are_counted() -> None:
    tail = LoggedTail()
    tail.add(*batch(0, b"a", b"b"))
    tail.add(*batch(1, b"c"))
    tail.add(*batch(2, b"d", b"e"))
    assert tail.after(ORDERS, lambda incarnation, whole: whole <= 0) == 3
    assert tail.after(ORDERS, lambda incarnation, whole: False) == 5
    assert tail.after(ORDERS, lambda incarnation, whole: True) == 0


def test_each_run_has_as_many_as_a_consumer_had_in_hand_where_several_may_come_back() -> None:
    search, tail = TailSearch(per_incarnation=True), LoggedTail(per_incarnation=True)
    for run, offset in ((I1, 100), (I2, 200)):
        for number in range(9):
            header, data = batch(number, *[run + b"%d" % number] * 250, incarnation=run)
            search.take(offset + number, header)
            tail.add(header, data)
    both = {*range(101, 109), *range(201, 209)}
    assert search.needed(lambda incarnation, whole: True) == {ORDERS: both}
    wanted = digests(*(run + b"%d" % number for run in (I1, I2) for number in range(1, 9)))
    assert list(dict.fromkeys(tail.entries(ORDERS))) == wanted
    assert tail.after(ORDERS, lambda incarnation, whole: incarnation == I1) == PREFETCH
    last = tail.last(ORDERS)
    assert last is not None
    assert last.incarnation == I2
