"""Parcels on their way into the log: numbered, headed, in order, and only so many at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from relay.batches.batch import BatchHeader, BatchKind, Entry, Fragment, Predecessor
from relay.batches.format import decode_entries
from relay.batches.fragments import PIECE_BYTES
from relay.batches.opened_batch import content_of
from relay.log.run import Appended
from relay.log.site_log import LogClosed
from relay.packing.egress_acks import TagStretch
from relay.packing.flow_packer import FlowPacker, Parcel
from relay.packing.outbox import Confirmed, PackerOutbox
from relay.packing.packer_parts import PackerLog
from relay.packing.packer_settings import PackedExchange, PackerSettings
from relay.packing.requested_parcels import CanaryParcel, RequestedParcel

INCARNATION = b"incarna1"
ORDERS = PackedExchange("orders", "egress.orders")
PRICES = PackedExchange("prices", "egress.prices", lane=1)
NOW_MS = 1_700_000_000_000


class Log:
    """Takes what is appended, and confirms it when it is told to."""

    def __init__(self) -> None:
        self.headers: list[BatchHeader] = []
        self.data: list[bytes] = []
        self.answers: list[asyncio.Future[Appended]] = []

    def append_nowait(self, header: BatchHeader, data: bytes) -> asyncio.Future[Appended]:
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.headers.append(header)
        self.data.append(data)
        self.answers.append(answer)
        return answer

    async def confirm(self, *numbers: int) -> None:
        """The batches at these places of `headers`."""
        for number in numbers:
            self.answers[number].set_result(Appended.LOGGED)
        await asyncio.sleep(0)

    @property
    def names(self) -> list[tuple[str, tuple[str, ...], int, int]]:
        """Exchange, destinations, number in the series and in the whole incarnation."""
        return [
            (
                one.name.series.exchange,
                one.name.series.destinations,
                one.name.sequence,
                one.incarnation_sequence,
            )
            for one in self.headers
        ]


class Made:
    """An outbox, and what it tells."""

    def __init__(self, unconfirmed_bytes: int = 1 << 20) -> None:
        self.log = Log()
        self.confirmed: list[Confirmed] = []
        self.failed: list[str] = []
        self.has_ended = False
        settings = PackerSettings(
            "paris", "r1", "relay", (ORDERS, PRICES), unconfirmed_bytes=unconfirmed_bytes
        )
        self.outbox = PackerOutbox(
            settings,
            INCARNATION,
            cast(PackerLog, self.log),
            lambda: self.has_ended,
            self.confirmed.append,
            self.failed.append,
        )

    def add(self, *parcels: Parcel | RequestedParcel) -> None:
        for one in parcels:
            self.outbox.add(one)
        self.outbox.pump()


@pytest.fixture
async def made() -> Made:
    return Made()


def parcel(
    *bodies: bytes,
    exchange: PackedExchange = ORDERS,
    to: tuple[str, ...] = (),
    published_ms: int = NOW_MS,
    big: bool = False,
) -> Parcel:
    entries = [Entry(b"i" * 16, b"key", b"\0\0", body, published_ms) for body in bodies]
    flow = cast(FlowPacker, SimpleNamespace(exchange=exchange))
    return Parcel(flow, entries, sum(map(len, bodies)), to, TagStretch(1), big)


def big_parcel(pieces: int, **more: int) -> Parcel:
    return parcel(b"b" * (PIECE_BYTES * (pieces - 1) + 1), big=True, **more)


def bodies(data: bytes) -> list[bytes]:
    return [entry.body for entry in decode_entries(data)]


async def test_batches_are_numbered_in_their_series_and_over_the_whole_incarnation(
    made: Made,
) -> None:
    made.add(parcel(b"a"), parcel(b"b", exchange=PRICES), parcel(b"c", to=("lima",)), parcel(b"d"))
    assert made.log.names == [
        ("orders", (), 0, 0),
        ("prices", (), 0, 1),
        ("orders", ("lima",), 0, 2),
        ("orders", (), 1, 3),
    ]
    assert [one.name.series.lane for one in made.log.headers] == [0, 1, 0, 0]
    assert [bodies(data) for data in made.log.data] == [[b"a"], [b"b"], [b"c"], [b"d"]]


async def test_a_header_tells_of_predecessors_revision_times_and_running_totals(
    made: Made,
) -> None:
    made.add(parcel(b"a", b"b"))
    made.outbox.predecessors = (Predecessor(b"incarna0", 7),)
    made.outbox.revision = "r2"
    one, two = parcel(b"c"), parcel(b"d", published_ms=NOW_MS + 5)
    one.entries += two.entries
    made.add(one)
    first, second = made.log.headers
    assert (first.predecessors, first.revision, first.total_messages) == ((), "r1", 2)
    assert (second.predecessors, second.revision) == ((Predecessor(b"incarna0", 7),), "r2")
    assert second.total_messages == 4
    assert second.total_bytes == first.byte_count + second.byte_count
    assert (second.first_published_ms, second.last_published_ms) == (NOW_MS, NOW_MS + 5)
    assert second.path == ("paris",)


async def test_the_mark_takes_the_next_number_and_has_no_messages(made: Made) -> None:
    waiting = asyncio.ensure_future(made.outbox.append_mark(NOW_MS))
    await asyncio.sleep(0)
    assert not waiting.done()
    await made.log.confirm(0)
    assert await waiting == 0
    made.add(parcel(b"a"))
    mark, batch = made.log.headers
    assert (mark.kind, mark.entry_count, mark.total_messages) == (BatchKind.MARK, 0, 0)
    assert (batch.incarnation_sequence, batch.name.sequence) == (1, 0)


async def test_more_than_the_log_may_have_unconfirmed_waits() -> None:
    made = Made(unconfirmed_bytes=1)
    made.add(parcel(b"a"), parcel(b"b"), parcel(b"c"))
    assert len(made.log.headers) == 1
    await made.log.confirm(0)
    assert len(made.log.headers) == 1  # whoever is told of the confirm asks for more
    made.outbox.pump()
    assert len(made.log.headers) == 2
    assert not made.outbox.is_empty
    await made.log.confirm(1)
    made.outbox.pump()
    await made.log.confirm(2)
    assert made.outbox.is_empty


async def test_what_is_confirmed_comes_with_its_parcel_and_bytes_and_without_the_bodies(
    made: Made,
) -> None:
    sent = parcel(b"a", b"b")
    made.add(sent)
    await made.log.confirm(0)
    (done,) = made.confirmed
    assert (done.parcel, done.size) == (sent, len(made.log.data[0]))
    assert [(entry.identity, entry.body) for entry in done.entries] == [(b"i" * 16, b"")] * 2
    assert sent.stretch.whole_sequence == done.header.incarnation_sequence == 0


async def test_a_big_message_leaves_in_pieces_without_others_between() -> None:
    made = Made(unconfirmed_bytes=1)
    big = big_parcel(3)
    whole = big.entries[0]
    body = whole.body
    made.add(big, parcel(b"behind"))
    for number in range(4):
        await made.log.confirm(number)
        made.outbox.pump()
    pieces = made.log.headers[:3]
    assert [one.kind for one in pieces] == [BatchKind.FRAGMENT] * 3
    assert [one.fragment for one in pieces] == [Fragment(n, 3) for n in range(3)]
    assert [one.name.sequence for one in made.log.headers] == [0, 1, 2, 3]
    assert [one.content for one in made.log.headers] == [*[content_of(whole)] * 3, b""]
    assert b"".join(bodies(data)[0] for data in made.log.data[:3]) == body
    assert [done.parcel is big for done in made.confirmed] == [False, False, True, False]
    assert big.stretch.whole_sequence == 2


async def test_a_message_in_pieces_counts_once_with_its_last_one(made: Made) -> None:
    made.add(parcel(b"before"), big_parcel(2), parcel(b"behind"))
    assert [one.total_messages for one in made.log.headers] == [1, 1, 2, 3]


async def test_all_pieces_of_a_message_bear_the_revision_of_the_first() -> None:
    made = Made(unconfirmed_bytes=1)
    made.add(big_parcel(2), parcel(b"behind"))
    made.outbox.revision = "r2"
    for number in range(3):
        await made.log.confirm(number)
        made.outbox.pump()
    assert [one.revision for one in made.log.headers] == ["r1", "r1", "r2"]


async def test_the_outbox_appends_nothing_once_it_may_not(made: Made) -> None:
    made.has_ended = True
    made.add(parcel(b"a"))
    assert made.log.headers == []
    assert not made.outbox.is_empty


async def test_an_append_in_doubt_is_told_with_its_reason_and_confirms_nothing(
    made: Made,
) -> None:
    made.add(parcel(b"a"), parcel(b"b"))
    made.log.answers[0].set_exception(LogClosed("the connection went"))
    made.log.answers[1].cancel()
    await asyncio.sleep(0)
    assert made.failed == ["the connection went", "the append was cancelled"]
    assert made.confirmed == []


async def test_the_outbox_knows_the_oldest_publish_time_not_confirmed() -> None:
    made = Made(unconfirmed_bytes=1)
    assert made.outbox.oldest_published_ms is None
    made.add(parcel(b"a", published_ms=20), parcel(b"b", published_ms=10))
    assert made.outbox.oldest_published_ms == 10  # one waits in the log, one here
    await made.log.confirm(0)
    assert made.outbox.oldest_published_ms == 10
    made.outbox.pump()
    await made.log.confirm(1)
    assert made.outbox.oldest_published_ms is None


async def test_a_canary_is_a_batch_of_its_own_numbers_without_messages(made: Made) -> None:
    canary, next_one = CanaryParcel(NOW_MS), CanaryParcel(NOW_MS)
    made.add(parcel(b"a"), canary, big_parcel(2), next_one)
    assert made.log.names == [
        ("orders", (), 0, 0),
        ("", (), 0, 1),
        ("orders", (), 1, 2),
        ("orders", (), 2, 3),
        ("", (), 1, 4),
    ]
    header = made.log.headers[1]
    assert (header.kind, header.entry_count, header.total_messages) == (BatchKind.CANARY, 0, 1)
    assert (header.first_published_ms, header.last_published_ms) == (NOW_MS, NOW_MS)
    assert bodies(made.log.data[1]) == []
    await made.log.confirm(0)
    assert made.outbox.oldest_published_ms == NOW_MS
    assert canary.name is None
    await made.log.confirm(1)
    assert canary.name == header.name
    assert made.confirmed[-1].parcel is canary


async def test_a_canary_that_is_not_logged_when_the_incarnation_ends_is_given_up(
    made: Made,
) -> None:
    logged, waits = CanaryParcel(NOW_MS), CanaryParcel(NOW_MS)
    made.add(logged, waits)
    await made.log.confirm(0)
    made.outbox.give_up()
    assert (logged.given_up, waits.given_up) == (False, True)
    assert made.outbox.oldest_published_ms is None  # of nobody's message
