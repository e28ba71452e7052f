"""What a measurement came to, in figures and for people."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from isthmus.bench.figures import BenchResult, Pair, Published, pair_of, report_of
from isthmus.bench.options import BenchOptions
from isthmus.bench.request import request_of
from isthmus.bench.tables import Snapshot, live_line, live_table, tables
from isthmus.load.sink import Arrivals, Latencies
from tests.federation.meshes import TRIANGLE, mesh_of

ASKED = request_of(
    mesh_of(TRIANGLE),
    BenchOptions(origins=["paris"], destinations=["tokyo"], rate="100", duration="10s"),
)
SECOND = 1_000_000_000


def pair(*numbers: int, sent: int, refused: frozenset[int] = frozenset()) -> Pair:
    """These came, in this order, each 20 ms after it was sent; the last after four seconds."""
    arrivals, latencies = Arrivals(), Latencies()
    firsts = [number for number in numbers if arrivals.take(number, b"")]
    arrivals.last_at_ns = 5 * SECOND
    latencies.add([20_000_000] * len(firsts))
    published = Published(sent, sent - len(refused), refused)
    return pair_of("paris", "tokyo", published, arrivals, latencies, began_ns=SECOND)


def outcome(one: Pair) -> BenchResult:
    return BenchResult(ASKED, {"paris": one.published}, {"paris": 10.0}, [one])


def text(told: BenchResult) -> str:
    page = Console(file=io.StringIO(), width=160)
    page.print(tables(told))
    assert isinstance(page.file, io.StringIO)
    return page.file.getvalue()


def test_all_that_came_once_is_well() -> None:
    whole = outcome(pair(*range(1000), sent=1000))
    told = report_of(whole)
    assert told["all_arrived_once"]
    assert told["published"]["paris"]["per_second"] == 100
    (row,) = told["pairs"]
    assert (row["delivered"], row["missing"], row["seconds"], row["per_second"]) == (
        1000,
        0,
        4,
        250,
    )
    assert row["latency_ms"] == {"p50": 20, "p90": 20, "p99": 20, "max": 20}
    assert "ALL ARRIVED ONCE" in text(whole)
    assert "as fast as it went" not in text(whole)


def test_absent_messages_are_missing_unless_refused() -> None:
    short = outcome(pair(0, 1, 3, sent=6, refused=frozenset({4})))
    told = report_of(short)
    assert (told["missing"], told["all_arrived_once"]) == (2, False)
    assert "NOT ALL ARRIVED ONCE: 2 messages missing" in text(short)
    assert "1 message was refused" in text(short)


def test_a_second_copy_without_its_flag_is_not_well_and_one_with_it_is() -> None:
    twice = pair(0, 1, 1, sent=2)
    assert not outcome(twice).all_arrived_once
    assert "1 duplicate without the flag" in text(outcome(twice))
    assert outcome(replace(twice, flagged=1, unflagged=0)).all_arrived_once


def test_of_what_never_came_there_is_no_latency() -> None:
    (row,) = report_of(outcome(pair(sent=5)))["pairs"]
    assert row["latency_ms"] == {"p50": None, "p90": None, "p99": None, "max": None}


def test_disorder_and_a_rate_not_kept_are_noted() -> None:
    slow = outcome(pair(1, 0, sent=2))
    assert report_of(slow)["rate_not_kept_at"] == ["paris"]
    assert "the rate was not kept at paris" in text(slow)
    assert "1 message came after later ones" in text(slow)


def test_problems_come_before_counts() -> None:
    broken = replace(outcome(pair(0, sent=2)), problems=["tokyo listens no more: gone"])
    assert "NOT MEASURED: tokyo listens no more: gone" in text(broken)
    assert "NOT ALL ARRIVED" not in text(broken)


def test_a_busy_bench_warns_that_it_may_be_the_limit() -> None:
    whole = outcome(pair(0, sent=1))
    assert "this program itself took" not in text(whole)
    assert "took 97% of a core" in text(replace(whole, busy=0.97))


def test_a_line_has_the_rates_since_the_last_one() -> None:
    latencies = Latencies()
    latencies.add([8_000_000])
    before = Snapshot(1.0, {"paris": 100}, {"tokyo": 40})
    now = Snapshot(3.0, {"paris": 300}, {"tokyo": 240}, {"tokyo": 60}, latencies)
    assert live_line(now, before) == (
        "   3 s: published 100/s; delivered at tokyo 100/s; waiting 60; "
        "latency so far p50 8.0 ms, p99 8.0 ms"
    )
    assert "nothing has arrived yet" in live_line(Snapshot(1.0), Snapshot())


def test_on_a_terminal_each_site_has_its_row() -> None:
    now = Snapshot(2.0, {"paris": 300}, {"tokyo": 240}, {"tokyo": 1060})
    page = Console(file=io.StringIO(), width=100)
    page.print(live_table(now, Snapshot(1.0)))
    assert isinstance(page.file, io.StringIO)
    rows = [row.replace("│", "").split() for row in page.file.getvalue().splitlines()]
    assert ["paris", "300", "-", "-"] in rows
    assert ["tokyo", "-", "240", "1,060"] in rows
