"""What a packer reads back of its predecessors, and what it may believe of it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import cast

import pytest

from relay.batches.batch import (
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    LoggedBatch,
    Place,
    Predecessor,
    Series,
)
from relay.batches.format import seal
from relay.batches.incarnation import VoidTable
from relay.log.run import LogRun
from relay.packing.comeback import past as packer_past
from relay.packing.comeback.past import PackerPast, ResumePoint, read_past
from relay.packing.comeback.returned_prefix import PREFETCH, ReturnVerdict, message_digest
from relay.packing.packer_parts import IncarnationEnded, PackerLog, PackerMemory, PackerParts
from relay.packing.packer_record import Acked, MemoryPackedLedger, PackerRecord

I1, I2, NEW = b"incarna1", b"incarna2", b"incarnaN"
ORDERS = "orders"
LOG_ID = b"the log"


class Log:
    """A site's log, of which all is checked; `reads` are the offsets that were read from."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.reads: list[int] = []
        self.run: LogRun | None = None
        self.next_offset = 0
        self.eats_after_first_reading = 0
        """Batches that retention takes then."""
        self._whole: dict[bytes, int] = {}
        self._sequences: dict[Series, int] = {}

    @property
    def checked(self) -> Place | None:
        return self.batches[-1].place if self.batches else None

    async def read_to_end(self, from_offset: int) -> AsyncIterator[list[LoggedBatch]]:
        self.reads.append(from_offset)
        if len(self.reads) > 1:
            del self.batches[: self.eats_after_first_reading]
        for batch in self.batches:
            if batch.place.offset >= from_offset:
                yield [batch]

    def put(
        self,
        incarnation: bytes,
        *bodies: bytes,
        exchange: str = "orders",
        origin: str = "paris",
        to: tuple[str, ...] = (),
        predecessors: Sequence[Predecessor] = (),
    ) -> BatchHeader:
        """The next batch of that incarnation; without bodies a mark, which has no exchange."""
        series = Series(origin, incarnation, exchange if bodies else "", 0, to)
        whole = self._whole[incarnation] = self._whole.get(incarnation, -1) + 1
        number = self._sequences[series] = self._sequences.get(series, -1) + 1
        entries = [Entry(b"i" * 16, b"key", b"\0\0", body, 1) for body in bodies]
        header, data = seal(
            BatchHeader(
                BatchKind.MESSAGES if bodies else BatchKind.MARK,
                BatchName(series, number),
                whole,
                tuple(predecessors),
                *("r", 0, 0, 0, 0, 1, 1),
                (origin,),
            ),
            entries,
        )
        # Offsets with holes, as stored marks make them.
        place = Place(self.next_offset, header.name)
        self.next_offset += 10
        self.batches.append(LoggedBatch(place, header, data))
        return header

    def begins(self, incarnation: bytes, *predecessors: Predecessor) -> None:
        """Its mark, and its statement."""
        self.put(incarnation)
        self.put(incarnation, predecessors=predecessors)

    def damage(self, number: int) -> None:
        batch = self.batches[number]
        self.batches[number] = batch._replace(data=batch.data[:-8] + os.urandom(8))


async def past_of(
    log: Log,
    record: PackerRecord | None = None,
    *,
    same_process: bool = False,
    in_order: bool = True,
    with_mark: bool = True,
    was_clean: bool = False,
    shares_power: bool = True,
    ended: tuple[Predecessor, ...] = (),
) -> PackerPast:
    """As an incarnation reads it whose mark was just appended."""
    if with_mark:
        log.put(NEW)

    async def never() -> bool:
        raise AssertionError("not asked for")

    parts = PackerParts(
        connect=never,  # type: ignore[arg-type]
        log=cast(PackerLog, log),
        ledger=MemoryPackedLedger(),
        voids=VoidTable(("paris", one) for one in ended),
        now_ms=lambda: 1,
        random_bytes=os.urandom,
        former_gone=never,
        boot="boot 1",
        was_clean=was_clean,
        shares_power=shares_power,
    )
    memory = PackerMemory(record, same_process)
    last = None if record is None else Predecessor(record.incarnation, record.end)
    return await read_past("paris", NEW, parts, memory, last, LOG_ID, in_order=in_order)


def record(incarnation: bytes, end: int, **acked: int) -> PackerRecord:
    """Of an incarnation that has acknowledged so far, by exchange."""
    return PackerRecord(
        incarnation,
        end,
        "boot 1",
        LOG_ID,
        acked={name: Acked(incarnation, number) for name, number in acked.items()},
    )


def verdicts(past: PackerPast, *bodies: bytes) -> list[ReturnVerdict]:
    """What is said of these at once when they come out of the egress of orders, flagged."""
    returned = past.returned(ORDERS, past.acked.get("orders"), lambda properties: False)
    return returned.take([message_digest(b"key", b"\0\0", body) for body in bodies])


async def test_an_empty_log_has_no_past() -> None:
    past = await past_of(Log())
    assert past.predecessors == ()
    assert past.tail.partitions == []
    assert (past.trusted, past.lost_tail, past.unrecorded) == (False, False, [])


async def test_the_past_has_the_ends_of_predecessors_the_latest_first() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"a")
    log.begins(I2, Predecessor(I1, 2))
    log.put(I2, b"b")
    past = await past_of(log, record(I2, 2))
    assert past.predecessors == (Predecessor(I2, 2),)  # which has stated its own
    assert past.order == {I1: 0, I2: 1}


def with_a_late_batch() -> Log:
    """Of a run that had ended, behind the statement of the next one."""
    log = Log()
    log.begins(I1)
    log.put(I1, b"a")
    log.begins(I2, Predecessor(I1, 2))
    log.put(I1, b"late, void")
    log.put(I2, b"b")
    return log


async def test_what_was_written_behind_the_statement_of_the_next_one_is_not_in_the_tail() -> None:
    log = with_a_late_batch()
    past = await past_of(log, record(I2, 2))
    assert len(past.tail.entries(ORDERS)) == 2


async def test_nor_when_retention_has_taken_that_statement_since() -> None:
    log = with_a_late_batch()
    del log.batches[:5]
    past = await past_of(log, record(I2, 2), ended=(Predecessor(I1, 2),))
    assert len(past.tail.entries(ORDERS)) == 1
    assert past.predecessors == (Predecessor(I2, 2),)


async def test_batches_of_others_are_passed_over() -> None:
    log = Log()
    log.begins(I1)
    log.put(b"a tokyo1", b"x", origin="tokyo")
    log.put(I1, b"a")
    past = await past_of(log, record(I1, 2))
    assert past.tail.partitions == [ORDERS]


async def test_a_log_that_does_not_show_our_mark_ends_the_incarnation() -> None:
    log = Log()
    log.begins(I1)
    with pytest.raises(IncarnationEnded, match="does not show the mark"):
        await past_of(log, with_mark=False)


async def test_the_past_is_read_from_the_place_in_the_record() -> None:
    log = Log()
    log.begins(I1)
    for body in (b"a", b"b", b"c"):
        log.put(I1, body)
    past = await past_of(log, replace(record(I1, 4), read_from=30, read_after=2))
    assert log.reads == [30, 30]
    assert len(past.tail.entries(ORDERS)) == 2
    assert past.read_from == ResumePoint(30)


async def test_between_the_tails_of_two_runs_the_log_is_not_read_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packer_past, "_WORTH_SEEKING", 50)  # five batches here
    log = Log()
    log.begins(I1)
    log.put(I1, b"a")
    for _ in range(6):
        log.put(b"another's", b"x", origin="lima")
    log.begins(I2, Predecessor(I1, 2))
    log.put(I2, b"b")
    log.put(I2, b"c")
    past = await past_of(log, record(I2, 3), in_order=False)
    assert log.reads == [0, 20, 110]
    assert [entry.digest for entry in past.tail.entries(ORDERS)] == [
        message_digest(b"key", b"\0\0", body) for body in (b"a", b"b", b"c")
    ]


async def test_what_retention_takes_between_two_readings_holds_up_nobody() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"a")
    log.put(I1, b"b")
    log.eats_after_first_reading = 3
    past = await past_of(log, record(I1, 3))
    assert len(past.tail.entries(ORDERS)) == 1


async def test_a_place_behind_the_end_of_a_log_that_lost_its_tail_is_not_read_from() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"a")
    past = await past_of(log, replace(record(I1, 9), read_from=5000))
    assert log.reads[0] == log.batches[-1].place.offset  # of what is checked
    assert past.lost_tail


async def test_what_retention_took_may_be_what_comes_back() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"eaten before egress heard that it is logged")
    log.put(I1, b"b")
    del log.batches[:3]
    past = await past_of(log, replace(record(I1, 3), read_from=10, read_after=0))
    assert (past.lost_head, past.trusted) == (True, False)
    assert verdicts(past, b"eaten before egress heard that it is logged") == [
        ReturnVerdict.MAYBE_LOST
    ]
    assert past.read_from == ResumePoint(30)  # whoever reads next misses nothing before that


async def test_a_log_that_was_eaten_before_there_was_a_record_is_no_doubt() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"a")
    del log.batches[:2]
    past = await past_of(log)
    assert not past.lost_head
    assert past.read_from == ResumePoint(20)


async def test_the_first_run_in_a_log_notes_where_its_mark_stands() -> None:
    log = Log()
    log.next_offset = 10  # as behind a stored mark of the deliverer
    assert (await past_of(log)).read_from == ResumePoint(10)


class TestTrust:
    """Whether what the record does not mention was certainly never acknowledged."""

    @pytest.fixture
    def log(self) -> Log:
        log = Log()
        log.begins(I1)
        log.put(I1, b"a")
        log.put(I1, b"b")
        log.put(I1, b"x", exchange="prices")
        return log

    async def test_the_record_of_the_last_run_of_this_boot_is_believed(self, log: Log) -> None:
        past = await past_of(log, record(I1, 4, orders=2))
        assert past.trusted
        assert past.acked == {"orders": Acked(I1, 2)}
        assert verdicts(past, b"b", b"new") == [ReturnVerdict.LOGGED, ReturnVerdict.NEW]

    async def test_without_a_record_all_may_have_been_acknowledged(self, log: Log) -> None:
        past = await past_of(log)
        assert not past.trusted
        assert past.acked == {"orders": Acked(I1, 3), "prices": Acked(I1, 4)}
        # It may be another message of the same content: its like was perhaps acknowledged.
        assert verdicts(past, b"b") == [ReturnVerdict.MAYBE_LOGGED]

    async def test_after_another_boot_writes_may_be_lost(self, log: Log) -> None:
        past = await past_of(log, replace(record(I1, 4, orders=2), boot="boot 0"))
        assert not past.trusted
        assert past.acked["orders"] == Acked(I1, 3)

    async def test_nor_can_anybody_say_then_what_the_log_had(self, log: Log) -> None:
        told = replace(record(I1, 4, orders=2), boot="boot 0")
        past = await past_of(log, told)
        assert past.lost_power
        assert verdicts(past, b"logged once, perhaps") == [ReturnVerdict.MAYBE_LOST]
        # Unless it had ended in order, when all that was in flight was done with.
        past = await past_of(log, told, was_clean=True)
        assert not past.lost_power

    async def test_a_node_that_takes_over_can_say_what_the_log_had_but_not_what_was_acknowledged(
        self, log: Log
    ) -> None:
        told = replace(record(I1, 4, orders=2), boot="boot of another node")
        past = await past_of(log, told, shares_power=False)
        assert not past.lost_power
        assert not past.trusted
        assert verdicts(past, b"never logged") == [ReturnVerdict.NEW]
        assert verdicts(past, b"b") == [ReturnVerdict.MAYBE_LOGGED]

    async def test_exchanges_that_a_former_incarnation_left_in_doubt_stay_so(
        self, log: Log
    ) -> None:
        told = replace(record(I1, 4, orders=2), in_doubt=frozenset({"orders"}))
        past = await past_of(log, told, same_process=True)
        assert not past.lacks_some
        assert verdicts(past, b"never logged, for all we know") == [ReturnVerdict.MAYBE_LOST]

    async def test_but_this_process_s_own_record_is_true(self, log: Log) -> None:
        told = replace(record(I1, 4, orders=2), boot="boot 0")
        assert (await past_of(log, told, same_process=True)).trusted

    async def test_a_record_that_was_put_back_knows_less_than_the_log(self, log: Log) -> None:
        log.begins(I2, Predecessor(I1, 4))
        log.put(I2, b"of a run that wrote elsewhere")
        assert not (await past_of(log, record(I1, 4, orders=2))).trusted

    async def test_a_later_run_that_packed_nothing_changes_nothing(self, log: Log) -> None:
        log.begins(I2, Predecessor(I1, 4))
        assert (await past_of(log, record(I1, 4, orders=2))).trusted

    async def test_a_log_that_lacks_what_it_had_confirmed_has_lost_its_tail(self, log: Log) -> None:
        past = await past_of(log, record(I1, 9, orders=2))
        assert (past.lost_tail, past.trusted) == (True, False)

    async def test_so_has_one_with_another_id(self, log: Log) -> None:
        past = await past_of(log, replace(record(I1, 4, orders=2), log_id=b"another"))
        assert (past.lost_tail, past.trusted) == (True, False)


async def test_what_the_log_has_and_the_record_not_yet_is_told_for_the_ledger() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"recorded")
    behind = log.put(I1, b"logged, and killed")
    past = await past_of(log, record(I1, 2))
    (packed,) = past.unrecorded
    assert packed.header == behind
    assert [entry.body for entry in packed.entries] == [b""]


async def test_after_a_power_cut_that_is_more_than_egress_can_hand_out_again() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"recorded")
    behind = [log.put(I1, *[b"logged"] * 250) for _ in range(PREFETCH // 250 + 3)]
    past = await past_of(log, replace(record(I1, 2), boot="boot 0"))
    assert [packed.header for packed in past.unrecorded] == behind
    assert len(past.tail.entries(ORDERS)) == PREFETCH


async def test_marks_have_no_rows() -> None:
    log = Log()
    log.begins(I1)
    assert (await past_of(log, record(I1, 0))).unrecorded == []


async def test_a_batch_that_cannot_be_read_is_told_by_exchange_and_the_rest_remembered() -> None:
    log = Log()
    log.begins(I1)
    log.put(I1, b"a")
    log.put(I1, b"x" * 100, exchange="prices")
    log.damage(3)
    past = await past_of(log, record(I1, 3))
    assert list(past.unreadable) == ["prices"]
    assert past.tail.partitions == [ORDERS]


async def test_batches_for_the_own_site_alone_are_for_no_neighbour() -> None:
    log = Log()
    log.begins(I1)
    unwanted = log.put(I1, b"unwanted", to=("paris",))
    wanted = log.put(I1, b"wanted", to=("tokyo",))
    past = await past_of(log, record(I1, 3))
    assert past.tail.batches_of_last(ORDERS, 2) == [unwanted.name, wanted.name]
    assert past.sent_of_last(ORDERS, 2) == [wanted.name]
