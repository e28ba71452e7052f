"""Which batches count: incarnations, their ends, and what the own log shows of them."""

from __future__ import annotations

import pytest

from relay.batches.batch import BatchHeader, BatchKind, BatchName, Predecessor, Series
from relay.batches.incarnation import (
    MAX_PREDECESSORS,
    MAX_REMEMBERED,
    OwnHistory,
    VoidTable,
    is_mark,
)

I0, I1, I2, I3 = (f"incarna{n}".encode() for n in range(4))


def header(
    incarnation: bytes,
    sequence: int,
    *predecessors: tuple[bytes, int],
    kind: BatchKind = BatchKind.MESSAGES,
    origin: str = "paris",
) -> BatchHeader:
    series = Series(origin, incarnation, "orders", 0, ())
    told = tuple(Predecessor(*one) for one in predecessors)
    name = BatchName(series, sequence)
    return BatchHeader(kind, name, sequence, told, "r", 1, 1, 1, 1, 0, 0, (origin,))


def mark(incarnation: bytes) -> BatchHeader:
    return header(incarnation, 0, kind=BatchKind.MARK)


def statement(incarnation: bytes, *predecessors: tuple[bytes, int]) -> BatchHeader:
    return header(incarnation, 1, *predecessors, kind=BatchKind.MARK)


class TestVoidTable:
    def test_what_stands_above_its_incarnation_s_end_is_void(self) -> None:
        table = VoidTable()
        assert table.learn(header(I2, 1, (I1, 50)))
        assert not table.is_void(header(I1, 50))
        assert table.is_void(header(I1, 51))
        assert not table.is_void(header(I2, 99))
        assert table.end_of("paris", I1) == 50

    def test_nothing_is_void_before_anybody_said_so(self) -> None:
        table = VoidTable()
        table.learn(mark(I2))
        assert not table.is_void(header(I1, 51))

    def test_other_origins_are_not_concerned(self) -> None:
        table = VoidTable()
        table.learn(header(I2, 1, (I1, 50)))
        assert not table.is_void(header(I1, 51, origin="tokyo"))

    def test_the_same_again_is_no_news(self) -> None:
        table = VoidTable()
        assert table.learn(header(I2, 1, (I1, 50)))
        assert not table.learn(header(I2, 2, (I1, 50)))

    def test_a_smaller_end_read_from_a_log_that_lost_its_tail_does_not_shrink_it(self) -> None:
        table = VoidTable()
        table.learn(header(I2, 1, (I1, 50)))
        assert not table.learn(header(I3, 1, (I1, 40)))
        assert not table.is_void(header(I1, 50))

    def test_a_void_batch_teaches_nothing(self) -> None:
        table = VoidTable()
        table.learn(header(I2, 1, (I1, 0), (I0, 9)))
        assert not table.learn(header(I1, 1, (I0, 99)))
        assert table.is_void(header(I0, 10))

    def test_it_is_made_again_from_what_a_state_keeps(self) -> None:
        table = VoidTable([("paris", Predecessor(I1, 50)), ("tokyo", Predecessor(I2, 3))])
        assert table.is_void(header(I1, 51))
        assert table.is_void(header(I2, 4, origin="tokyo"))

    def test_a_crash_loop_does_not_fill_the_memory(self) -> None:
        table = VoidTable()
        for n in range(MAX_REMEMBERED + 10):
            table.end("paris", (Predecessor(n.to_bytes(8, "big"), n),))
        assert table.end_of("paris", (9).to_bytes(8, "big")) is None
        assert table.end_of("paris", (10).to_bytes(8, "big")) == 10


class TestUndecided:
    def test_readers_wait_only_for_what_the_new_incarnation_has_to_decide(self) -> None:
        table = VoidTable()
        table.deciding("paris", I2, {I1: 50})
        assert not table.is_undecided(header(I1, 50))
        assert table.is_undecided(header(I1, 51))
        assert table.is_undecided(header(I0, 3)), "of which nothing is known"
        assert not table.is_undecided(header(I2, 0))
        assert not table.is_undecided(header(I1, 51, origin="tokyo"))

    def test_they_go_on_when_it_has(self) -> None:
        table = VoidTable()
        table.deciding("paris", I2, {I1: 50})
        table.decided((Predecessor(I1, 51),))
        assert not table.is_undecided(header(I1, 52))
        assert table.is_void(header(I1, 52))
        assert not table.is_void(header(I1, 51))

    def test_what_it_has_decided_is_news_where_it_stands_in_the_log(self) -> None:
        table = VoidTable()
        table.deciding("paris", I2, {I1: 50})
        table.decided((Predecessor(I1, 51),))
        said = statement(I2, (I1, 51))
        assert table.learn(said), "or nobody would write it down"
        assert not table.learn(said)

    def test_an_incarnation_that_ended_before_it_decided_leaves_it_to_the_next(self) -> None:
        table = VoidTable()
        table.deciding("paris", I2, {I1: 50})
        table.deciding("paris", I3, {I1: 50})
        assert table.is_undecided(header(I1, 51))
        assert table.is_undecided(mark(I2))

    def test_deciding_what_was_not_begun_is_a_mistake(self) -> None:
        with pytest.raises(RuntimeError):
            VoidTable().decided(())


def history_of(*headers: BatchHeader, **told: object) -> OwnHistory:
    history = OwnHistory("paris", **told)  # type: ignore[arg-type]
    for one in headers:
        history.take(one)
    return history


class TestOwnHistory:
    def test_a_first_incarnation_has_no_predecessor(self) -> None:
        assert history_of().predecessors() == ()

    def test_the_predecessor_ends_with_what_stands_before_the_mark(self) -> None:
        history = history_of(mark(I1), statement(I1), header(I1, 2), header(I1, 3))
        assert history.predecessors() == (Predecessor(I1, 3),)

    def test_other_sites_batches_are_none_of_it(self) -> None:
        assert history_of(header(I1, 5, origin="tokyo")).predecessors() == ()

    def test_one_that_only_left_a_mark_does_not_hide_the_one_before(self) -> None:
        history = history_of(mark(I1), statement(I1), header(I1, 2), mark(I2))
        assert history.predecessors() == (Predecessor(I2, 0), Predecessor(I1, 2))

    def test_what_lands_late_counts_if_nobody_had_decided(self) -> None:
        # I2 died between mark and statement: nobody has acted on what it saw.
        history = history_of(mark(I1), statement(I1), header(I1, 2), mark(I2), header(I1, 3))
        assert history.end_of(I1) == 3
        assert history.counts(I1, 3)

    def test_what_lands_late_does_not_count_if_a_statement_says_so(self) -> None:
        history = history_of(
            mark(I1),
            statement(I1),
            header(I1, 2),
            mark(I2),
            header(I1, 3),
            statement(I2, (I1, 2)),
        )
        assert not history.counts(I1, 3)
        assert history.counts(I1, 2)
        assert history.predecessors() == (Predecessor(I2, 1),)

    def test_a_mark_of_a_packer_without_its_lock_ends_nobody(self) -> None:
        history = history_of(mark(I2), statement(I2), header(I2, 2), mark(I1), header(I2, 3))
        assert history.end_of(I2) == 3

    def test_what_was_confirmed_and_the_log_lost_stays_valid_elsewhere(self) -> None:
        last = Predecessor(I1, 60)
        history = history_of(mark(I1), statement(I1), header(I1, 40), last=last)
        assert history.lost_its_tail()
        assert history.predecessors() == (Predecessor(I1, 60),)

    def test_a_last_run_that_is_older_than_what_was_read_is_told_of(self) -> None:
        last = Predecessor(I1, 60)
        history = history_of(last=last, read_after=60)
        assert not history.lost_its_tail()
        assert history.predecessors() == (last,)

    def test_a_long_row_of_starts_that_came_to_nothing_keeps_the_one_that_counts(self) -> None:
        starts = [mark(n.to_bytes(8, "big")) for n in range(20)]
        history = history_of(mark(I1), statement(I1), header(I1, 7), *starts)
        told = history.predecessors()
        assert len(told) == MAX_PREDECESSORS
        assert told[0].incarnation == (19).to_bytes(8, "big")
        assert told[-1] == Predecessor(I1, 7)

    def test_who_packed_anything_is_known(self) -> None:
        history = history_of(mark(I1), statement(I1), mark(I2), header(I2, 1))
        assert not history.packed_anything(I1)
        assert history.packed_anything(I2)
        assert history.order == [I1, I2]


def test_a_mark_is_the_first_of_its_incarnation() -> None:
    assert is_mark(mark(I1), I1)
    assert not is_mark(statement(I1), I1)
    assert not is_mark(mark(I1), I2)
    assert not is_mark(header(I1, 0), I1)


def test_what_is_written_down_of_an_end_is_never_less_than_what_is_known() -> None:
    table = VoidTable([("paris", Predecessor(b"1" * 8, 41))])
    told = [Predecessor(b"1" * 8, 12), Predecessor(b"2" * 8, 7)]
    assert table.ends("paris", told) == [Predecessor(b"1" * 8, 41), Predecessor(b"2" * 8, 7)]
    assert table.ends("lima", told) == told
