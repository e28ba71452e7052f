"""What is said of a gap: names, counts, and whose word it was that its stage went on."""

from __future__ import annotations

from relay.batches.batch import EVERY_SITE, BatchName, Place, Series
from relay.ledger.rows import Event, Stage, decode_row, encode_row
from relay.log.open_gap import OpenGap, just_before, read_gaps, write_gaps
from relay.log.reader import LogGap
from relay.log.recent_names import Seen

ORDERS = Series("c-paris", b"run_0001", "orders", 0, EVERY_SITE)
PRICES = Series("c-rome", b"run_0002", "prices", 0, EVERY_SITE)
MARKS = Series("c-paris", b"run_0001", "", 0, EVERY_SITE)


def seen(offset: int, series: Series, sequence: int, messages: int) -> Seen:
    """`messages`: of all so far."""
    return Seen(BatchName(series, sequence), offset, messages, 0)


LATELY = [
    seen(10, ORDERS, 4, 100),
    seen(11, ORDERS, 5, 103),
    seen(12, MARKS, 0, 103),
    seen(14, PRICES, 9, 110),
    seen(15, ORDERS, 6, 115),
    seen(20, ORDERS, 7, 200),
]


def gap_after(offset: int, first: int = 20) -> LogGap:
    return LogGap(Place(offset, BatchName(ORDERS, 4)), first)


def test_what_is_gone_is_told_by_origin_run_and_sequences() -> None:
    gap = OpenGap.of(gap_after(10), Stage.DELIVERED, 5, LATELY, lambda name: True)
    told = [(one.origin, one.first, one.last, one.batches, one.messages) for one in gap.gone]
    assert told == [("c-paris", 5, 6, 2, 8), ("c-rome", 9, 9, 1, 7)]
    assert gap.messages == 15
    assert gap.missing({"c-paris": "paris", "c-rome": "rome"}.__getitem__) == [
        f"offsets 11 to 19 of the log, after {BatchName(ORDERS, 4)}",
        "paris, run 72756e5f30303031, orders, sequences 5-6: 2 batches, 8 messages",
        "rome, run 72756e5f30303032, prices, sequences 9: 1 batches, 7 messages",
    ]


def test_what_was_not_needed_any_more_is_not_missing() -> None:
    gap = OpenGap.of(gap_after(10), Stage.DELIVERED, 5, LATELY, lambda n: n.series == PRICES)
    assert [one.origin for one in gap.gone] == ["c-rome"]


def test_where_the_node_does_not_remember_all_it_says_so() -> None:
    gap = OpenGap.of(gap_after(7), Stage.DELIVERED, 5, LATELY, lambda name: True)
    assert gap.messages is None
    assert not gap.is_all_named
    assert "does not remember" in gap.missing()[-1]


def test_it_is_read_back_as_it_was_written_and_a_larger_one_is_another() -> None:
    of_link = OpenGap.of(
        gap_after(10), Stage.LINKED_OUT, 5, LATELY, lambda _: True, link="a-b", neighbour="b"
    )
    of_flow = OpenGap.of(
        gap_after(10), Stage.DELIVERED, 5, LATELY, lambda _: True, flow=ORDERS.flow
    )
    assert read_gaps(write_gaps([of_link, of_flow])) == [of_link, of_flow]
    assert (of_link.key, of_flow.key) == ("link a-b", "flow c-paris/orders.0")
    larger = OpenGap.of(
        gap_after(10, 21), Stage.LINKED_OUT, 6, LATELY, lambda _: True, link="a-b", neighbour="b"
    )
    again = OpenGap.of(
        gap_after(10), Stage.LINKED_OUT, 99, [], lambda _: True, link="a-b", neighbour="b"
    )
    assert larger.id != of_link.id == again.id


def test_the_ledger_has_who_when_and_what() -> None:
    gap = OpenGap.of(gap_after(10), Stage.DELIVERED, 5, LATELY, lambda _: True, flow=ORDERS.flow)
    row = decode_row(encode_row(gap.accepted_row("ann@host", "2026-11-23T02:00:00+00:00", 7)))
    assert row.event is Event.GAP_ACCEPTED
    assert (row.origin, row.exchange, row.recorded_ms) == ("c-paris", "orders", 7)
    assert row.reason.startswith("accepted by ann@host at 2026-11-23T02:00:00+00:00: offsets 11 to")
    assert "sequences 5-6" in row.reason


def test_the_place_behind_a_gap_says_what_it_is() -> None:
    gap = OpenGap.of(LogGap(just_before(20), 30), Stage.DELIVERED, 5, [], lambda _: True)
    assert gap.after == "what was accepted as gone, up to offset 19"
    assert gap.missing()[0].startswith("offsets 20 to 29 of the log")
