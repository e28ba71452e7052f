"""Sets of names as intervals, held against plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.batches.batch import BatchName, Series
from relay.batches.name_set import BadNameSet, NameSet


def series(number: int = 0, incarnation: int = 0) -> Series:
    return Series(f"site-{number}", incarnation.to_bytes(8, "big"), "orders", 0, ())


def filled(names: list[tuple[int, int]]) -> NameSet:
    result = NameSet()
    for number, sequence in names:
        result.add(BatchName(series(number), sequence))
    return result


names = st.tuples(st.integers(0, 2), st.integers(0, 30))
steps = st.lists(st.tuples(st.sampled_from(["add", "discard"]), names), max_size=60)


@given(steps)
def test_it_holds_what_a_plain_set_holds(history: list[tuple[str, tuple[int, int]]]) -> None:
    plain: set[tuple[int, int]] = set()
    subject = NameSet()
    for verb, (number, sequence) in history:
        name = BatchName(series(number), sequence)
        if verb == "add":
            assert subject.add(name) is ((number, sequence) not in plain)
            plain.add((number, sequence))
        else:
            assert subject.discard(name) is ((number, sequence) in plain)
            plain.discard((number, sequence))
    assert len(subject) == len(plain)
    assert bool(subject) is bool(plain)
    assert sorted((int(n.series.origin[5:]), n.sequence) for n in subject) == sorted(plain)
    for number in range(3):
        for sequence in range(32):
            assert (BatchName(series(number), sequence) in subject) is ((number, sequence) in plain)
        assert subject.last(series(number)) == max((s for n, s in plain if n == number), default=-1)
    assert NameSet.decode(subject.encode()) == subject


@given(st.lists(names), st.lists(names))
def test_merging_is_the_union_and_leaves_the_other_alone(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    subject, other = filled(left), filled(right)
    before = other.copy()
    subject.merge(other)
    assert subject == filled(left + right)
    subject.add(BatchName(series(0), 1000))
    assert other == before


@given(st.lists(names), st.integers(0, 30), st.integers(0, 30))
def test_a_range_is_all_of_its_names(start_with: list[tuple[int, int]], a: int, b: int) -> None:
    low, high = min(a, b), max(a, b)
    subject = filled(start_with)
    subject.add_range(series(1), low, high)
    assert subject == filled(start_with + [(1, s) for s in range(low, high)])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_set_or_refused(data: bytes) -> None:
    for candidate in (data, b"\x01" + data):
        try:
            decoded = NameSet.decode(candidate)
        except BadNameSet:
            continue
        assert NameSet.decode(decoded.encode()) == decoded


def test_a_million_names_in_order_are_one_interval_and_a_few_bytes() -> None:
    subject = NameSet()
    one = series()
    for sequence in range(100_000):
        subject.add(BatchName(one, sequence))
    assert subject.interval_count() == 1
    assert len(subject) == 100_000
    assert len(subject.encode()) < 40


@given(st.lists(names), st.lists(names))
def test_being_within_is_being_a_subset(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    assert filled(some).is_within(filled(others)) is (set(some) <= set(others))
    assert filled(some).is_within(filled(some + others))


def test_a_copy_does_not_follow() -> None:
    subject = filled([(0, 1)])
    copy = subject.copy()
    subject.add(BatchName(series(), 2))
    assert copy == filled([(0, 1)])


def test_incarnations_that_ended_before_the_window_are_forgotten() -> None:
    subject = NameSet()
    subject.add(BatchName(series(0, 1), 5))
    subject.add(BatchName(series(0, 2), 0))
    assert subject.forget(lambda s: s.incarnation == (1).to_bytes(8, "big")) == 1
    assert subject.series() == [series(0, 2)]


def test_destination_sets_are_series_of_their_own() -> None:
    subject = NameSet()
    everyone = series()
    some = everyone._replace(destinations=("a", "b"))
    subject.add(BatchName(everyone, 0))
    assert BatchName(some, 0) not in subject
    subject.add(BatchName(some, 7))
    assert NameSet.decode(subject.encode()) == subject


def test_a_sequence_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="start at 0"):
        NameSet().add(BatchName(series(), -1))
    with pytest.raises(ValueError, match="no range"):
        NameSet().add_range(series(), 3, 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"",
        lambda d: b"\x02" + d[1:],
        lambda d: d[:-1],
        lambda d: d + b"\x00",
    ],
)
def test_damaged_bytes_are_refused(damage) -> None:  # type: ignore[no-untyped-def]
    data = filled([(0, 1), (0, 5), (1, 3)]).encode()
    with pytest.raises(BadNameSet):
        NameSet.decode(damage(data))
