"""Appends to a stream: their frames, their bound, and confirms in whatever order they come."""

from __future__ import annotations

import struct

import pytest

from relay.log.rabbit.stream_appends import StreamAppends
from relay.log.site_log import MAX_UNCONFIRMED_BYTES, LogClosed, LogRefused, SiteLogError

FRAME_BYTES = 100_000
LENGTH_BYTES = 4
"""Of a frame's own length before it, which its size does not count."""
FIRST_IDS = struct.Struct(">9xIQ")
"""How many records a frame has, and the first one's publishing ID."""


class Results(list[SiteLogError | None]):
    """Results of a submission, in order."""

    def __call__(self, error: SiteLogError | None) -> None:
        self.append(error)


class Sent(list[bytes]):
    """Frames as they were sent."""

    def ids(self, number: int) -> range:
        """Publishing IDs of that frame."""
        count, first = FIRST_IDS.unpack_from(self[number])
        return range(first, first + count)


def appends(sent: Sent) -> StreamAppends:
    return StreamAppends(0, FRAME_BYTES, sent.append)


def more_than_may_be_unconfirmed() -> list[bytes]:
    return [bytes(90_000)] * (2 * MAX_UNCONFIRMED_BYTES // 90_000)


def test_records_of_one_submission_share_a_frame_as_far_as_they_fit() -> None:
    sent = Sent()
    appends(sent).submit([bytes(30_000)] * 5, Results())
    assert [sent.ids(number) for number in range(len(sent))] == [range(3), range(3, 5)]


def test_a_record_that_fills_a_frame_is_taken_and_a_larger_one_refused() -> None:
    sent = Sent()
    made = appends(sent)
    made.submit([bytes(made.max_record_bytes)], Results())
    assert len(sent[0]) == LENGTH_BYTES + FRAME_BYTES
    with pytest.raises(LogRefused, match="bytes"):
        made.submit([b"fits", bytes(made.max_record_bytes + 1)], Results())
    assert len(sent) == 1


def test_a_submission_is_told_when_its_last_record_and_all_before_it_are_confirmed() -> None:
    made = appends(Sent())
    first, second = Results(), Results()
    made.submit([b"0", b"1"], first)
    made.submit([b"2"], second)
    made.on_confirm([2])
    made.on_confirm([1])
    assert (first, second) == ([], [])
    made.on_confirm([0])
    assert (first, second) == ([None], [None])


def test_what_is_unconfirmed_is_bounded_and_the_rest_follows() -> None:
    sent = Sent()
    made = appends(sent)
    told = Results()
    records = more_than_may_be_unconfirmed()
    made.submit(records, told)
    under_way = len(sent)
    assert under_way * 90_000 <= MAX_UNCONFIRMED_BYTES < (under_way + 1) * FRAME_BYTES
    confirmed = 0
    while confirmed < len(sent):
        assert len(sent) <= confirmed + under_way
        assert told == []
        made.on_confirm(sent.ids(confirmed))
        confirmed += 1
    assert confirmed == len(records)
    assert told == [None]


def test_a_failure_is_told_to_all_each_with_an_error_of_its_own() -> None:
    made = appends(Sent())
    written, waiting = Results(), Results()
    made.submit([b"under way"], written)
    made.submit(more_than_may_be_unconfirmed(), waiting)
    made.fail(lambda: LogClosed("gone"))
    made.fail(lambda: LogClosed("again"))
    assert [str(error) for error in (*written, *waiting)] == ["gone", "gone"]
    assert written[0] is not waiting[0]
