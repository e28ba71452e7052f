"""Tables of a measurement for a terminal, live and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from federation.mesh import OrderRule
from federation.mesh_file.quantities import show_duration, show_size
from federation.wording import counted, few
from isthmus.bench.ends import Ends
from isthmus.bench.figures import BenchResult, latency_report, report_of
from isthmus.display import MOST_OF_ALL, JsonObject, fill, table_of
from isthmus.load.sink import Latencies

MOST_BUSY = 0.85


def tables(result: BenchResult) -> Group:
    """Render the final report."""
    report = report_of(result)
    parts: list[RenderableType] = [escape(_heading(report))]
    parts += [_published(report), _pairs(report), _latencies(report)]
    parts += map(escape, _notes(result))
    parts.append(escape(_verdict(result)))
    return Group(*(one for part in parts for one in (part, "")))


def _heading(report: JsonObject) -> str:
    rate = report["per_second"]
    pace = "as fast as it went" if rate is None else f"{rate:g}/s at each site that publishes"
    return (
        f"exchange {report['exchange']}, key {report['key']!r}: {pace}, "
        f"{report['size_bytes']:,} bytes each, for {show_duration(report['duration_s'])}; "
        f"{report['queue_type']} queues"
    )


def _published(report: JsonObject) -> RenderableType:
    table = table_of("published", "at", ">sent", ">confirmed", ">refused", ">confirmed/s")
    rows = [{"at": site, **one} for site, one in report["published"].items()]
    return fill(
        table,
        rows,
        lambda row: [
            row["at"],
            *(f"{row[name]:,}" for name in ("sent", "confirmed", "refused")),
            f"{row['per_second']:,.0f}",
        ],
        MOST_OF_ALL,
    )


def _pairs(report: JsonObject) -> RenderableType:
    table = table_of(
        "delivered",
        *("from", "to", ">delivered", ">missing", ">again, flagged", ">again, unflagged"),
        *(">out of order", ">delivered/s"),
    )
    return fill(
        table,
        report["pairs"],
        lambda row: [
            row["from"],
            row["to"],
            *(
                f"{row[name]:,}"
                for name in (
                    "delivered",
                    "missing",
                    "duplicates_flagged",
                    "duplicates_unflagged",
                    "out_of_order",
                )
            ),
            f"{row['per_second']:,.0f}",
        ],
        MOST_OF_ALL,
    )


def _latencies(report: JsonObject) -> RenderableType:
    table = table_of("latency, ms", "from", "to", ">p50", ">p90", ">p99", ">max")
    return fill(
        table,
        report["pairs"],
        lambda row: [
            row["from"],
            row["to"],
            *("-" if ms is None else f"{ms:,.1f}" for ms in row["latency_ms"].values()),
        ],
        MOST_OF_ALL,
    )


def _notes(result: BenchResult) -> Iterator[str]:
    if result.request.per_second is None:
        yield (
            "as fast as it went, messages wait for each other: their latency is that of full "
            "queues. With --rate it is the mesh's."
        )
    if slower := result.slower():
        yield (
            f"the rate was not kept at {few(slower)}: the broker there, or this machine, could "
            "take no more. What waited counts from when it was due"
        )
    if result.busy > MOST_BUSY:
        yield (
            f"warning: this program itself took {result.busy:.0%} of a core, which may be what "
            "limits the figures: measure fewer sites at a time, or from several machines"
        )
    refused = sum(len(one.refused) for one in result.published.values())
    if refused:
        yield (
            f"{counted(refused, 'message')} {'was' if refused == 1 else 'were'} refused, or never "
            "answered for: what of that did not arrive is not missing"
        )
    if result.strangers:
        yield f"{counted(result.strangers, 'other message')} came under the key meanwhile"
    if result.missing:
        yield (
            "missing is what had not arrived when this gave up waiting; `isthmus status` says "
            "whether it is still under way, `isthmus doctor` why"
        )
    if result.out_of_order and result.request.exchange.order is OrderRule.STRICT:
        yield (
            f"{counted(result.out_of_order, 'message')} came after later ones of the same origin, "
            "as happens where a queue refuses a message for a while"
        )
    if result.interrupted:
        yield "it was ended before its time, without waiting for long"
    yield (
        f"{show_size(result.published_bytes)} were published; logs keep them, compressed, for the "
        "outage window, and they are in the ledger like all messages"
    )
    for left in result.left_behind:
        yield f"warning: a queue is left, and expires by itself: {left}"


def _verdict(result: BenchResult) -> str:
    if result.problems:
        return f"NOT MEASURED: {'; '.join(result.problems)}"
    if result.all_arrived_once:
        return "ALL ARRIVED ONCE: every confirmed message came to every site that was listened at."
    wrong = []
    if result.missing:
        wrong.append(f"{counted(result.missing, 'message')} missing, counted at each site")
    if result.unflagged:
        wrong.append(
            f"{counted(result.unflagged, 'duplicate')} without the flag x-mesh-redelivered"
        )
    return f"NOT ALL ARRIVED ONCE: {'; '.join(wrong)}."


@dataclass(slots=True)
class Snapshot:
    """Counts since the beginning, by site."""

    at_s: float = 0.0
    published: dict[str, int] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)

    @classmethod
    def of(cls, ends: Ends) -> Snapshot:
        taken = cls(ends.seconds, {site: source.confirmed for site, source in ends.sources.items()})
        for pair in ends.pairs():
            site = pair.destination
            taken.delivered[site] = taken.delivered.get(site, 0) + pair.delivered
            taken.waiting[site] = taken.waiting.get(site, 0) + pair.missing
            taken.latencies.merge(pair.latencies)
        return taken

    def per_second(self, before: Snapshot) -> tuple[dict[str, float], dict[str, float]]:
        """Return published and delivered messages a second since the earlier snapshot, by site."""
        seconds = self.at_s - before.at_s
        published, delivered = (
            {site: (count - then.get(site, 0)) / seconds for site, count in counts.items()}
            for counts, then in (
                (self.published, before.published),
                (self.delivered, before.delivered),
            )
        )
        return published, delivered


def live_line(now: Snapshot, before: Snapshot) -> str:
    """Render one line for files and pipes."""
    published, delivered = now.per_second(before)
    at = few([f"{site} {rate:,.0f}/s" for site, rate in delivered.items()])
    return (
        f"{now.at_s:4.0f} s: published {sum(published.values()):,.0f}/s; delivered at {at}; "
        f"waiting {sum(now.waiting.values()):,}; {_latency(now)}"
    )


def live_table(now: Snapshot, before: Snapshot) -> Table:
    """Render the table for a terminal, a row for each site."""
    published, delivered = now.per_second(before)
    table = Table(title=f"{now.at_s:.0f} s, {_latency(now)}", title_justify="left")
    table.add_column("site")
    for heading in ("published/s", "delivered/s", "still to come"):
        table.add_column(heading, justify="right")
    for site in dict.fromkeys([*published, *delivered]):
        out, into = (f"{of[site]:,.0f}" if site in of else "-" for of in (published, delivered))
        table.add_row(site, out, into, f"{now.waiting[site]:,}" if site in now.waiting else "-")
    return table


def _latency(now: Snapshot) -> str:
    report = latency_report(now.latencies)
    if report["p50"] is None:
        return "nothing has arrived yet"
    return f"latency so far p50 {report['p50']:,.1f} ms, p99 {report['p99']:,.1f} ms"


@contextmanager
def live_view(ends: Ends, console: Console) -> Iterator[Callable[[], None]]:
    """Yield the function that shows progress, to be called every second: in place on a terminal,
    else line by line.
    """
    before = Snapshot()

    def taken(show: Callable[[Snapshot, Snapshot], None]) -> None:
        nonlocal before
        now = Snapshot.of(ends)
        show(now, before)
        before = now

    if not console.is_terminal:
        yield lambda: taken(
            lambda now, before: console.print(
                live_line(now, before), soft_wrap=True, markup=False, highlight=False
            )
        )
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda: taken(lambda now, before: live.update(live_table(now, before), refresh=True))
