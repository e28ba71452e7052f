"""How a measurement goes, each second while it does: on a terminal in place, else line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from isthmus.bench.ends import Ends
from isthmus.bench.figures import latency_told
from isthmus.load import Latencies
from isthmus.tables import few


@dataclass(slots=True)
class Snapshot:
    """Counts since the beginning; by site."""

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
        """Published and delivered since then, by site."""
        seconds = self.at_s - before.at_s
        published, delivered = (
            {site: (count - then.get(site, 0)) / seconds for site, count in counts.items()}
            for counts, then in (
                (self.published, before.published),
                (self.delivered, before.delivered),
            )
        )
        return published, delivered


def line_of(now: Snapshot, before: Snapshot) -> str:
    """All of it in a line, for files and pipes."""
    published, delivered = now.per_second(before)
    at = few([f"{site} {rate:,.0f}/s" for site, rate in delivered.items()])
    return (
        f"{now.at_s:4.0f} s: published {sum(published.values()):,.0f}/s; delivered at {at}; "
        f"waiting {sum(now.waiting.values()):,}; {_latency(now)}"
    )


def table_of(now: Snapshot, before: Snapshot) -> Table:
    """The same for a terminal, with each site."""
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
    told = latency_told(now.latencies)
    if told["p50"] is None:
        return "nothing has arrived yet"
    return f"latency so far p50 {told['p50']:,.1f} ms, p99 {told['p99']:,.1f} ms"


@contextmanager
def shown(ends: Ends, console: Console) -> Iterator[Callable[[], None]]:
    """What is to be called every second."""
    before = Snapshot()

    def taken(show: Callable[[Snapshot, Snapshot], None]) -> None:
        nonlocal before
        now = Snapshot.of(ends)
        show(now, before)
        before = now

    if not console.is_terminal:
        yield lambda: taken(
            lambda now, before: console.print(
                line_of(now, before), soft_wrap=True, markup=False, highlight=False
            )
        )
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda: taken(lambda now, before: live.update(table_of(now, before), refresh=True))
