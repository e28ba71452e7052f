"""What a measurement came to, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape

from federation.counted import counted
from federation.mesh import OrderRule
from federation.mesh_file.quantities import show_duration, show_size
from isthmus.bench.figures import Outcome, told_of
from isthmus.tables import MOST_OF_ALL, few, fill, table_of

MOST_BUSY = 0.85
Told = dict[str, Any]


def tables(outcome: Outcome) -> Group:
    """The whole report."""
    told = told_of(outcome)
    parts: list[RenderableType] = [escape(_heading(told))]
    parts += [_published(told), _pairs(told), _latencies(told)]
    parts += map(escape, _notes(outcome))
    parts.append(escape(_verdict(outcome)))
    return Group(*(one for part in parts for one in (part, "")))


def _heading(told: Told) -> str:
    rate = told["per_second"]
    pace = "as fast as it went" if rate is None else f"{rate:g}/s at each site that publishes"
    return (
        f"exchange {told['exchange']}, key {told['key']!r}: {pace}, "
        f"{told['size_bytes']:,} bytes each, for {show_duration(told['duration_s'])}; "
        f"{told['queue_type']} queues"
    )


def _published(told: Told) -> RenderableType:
    table = table_of("published", "at", ">sent", ">confirmed", ">refused", ">confirmed/s")
    rows = [{"at": site, **one} for site, one in told["published"].items()]
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


def _pairs(told: Told) -> RenderableType:
    table = table_of(
        "delivered",
        *("from", "to", ">delivered", ">missing", ">again, flagged", ">again, unflagged"),
        *(">out of order", ">delivered/s"),
    )
    return fill(
        table,
        told["pairs"],
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


def _latencies(told: Told) -> RenderableType:
    table = table_of("latency, ms", "from", "to", ">p50", ">p90", ">p99", ">max")
    return fill(
        table,
        told["pairs"],
        lambda row: [
            row["from"],
            row["to"],
            *("-" if ms is None else f"{ms:,.1f}" for ms in row["latency_ms"].values()),
        ],
        MOST_OF_ALL,
    )


def _notes(outcome: Outcome) -> Iterator[str]:
    if outcome.asked.per_second is None:
        yield (
            "as fast as it went, messages wait for each other: their latency is that of full "
            "queues. With --rate it is the mesh's."
        )
    if slower := outcome.slower():
        yield (
            f"the rate was not kept at {few(slower)}: the broker there, or this machine, could "
            "take no more. What waited counts from when it was due"
        )
    if outcome.busy > MOST_BUSY:
        yield (
            f"warning: this program itself took {outcome.busy:.0%} of a core, which may be what "
            "limits the figures: measure fewer sites at a time, or from several machines"
        )
    refused = sum(len(one.refused) for one in outcome.published.values())
    if refused:
        yield (
            f"{counted(refused, 'message')} {'was' if refused == 1 else 'were'} refused, or never "
            "answered for: what of that did not arrive is not missing"
        )
    if outcome.strangers:
        yield f"{counted(outcome.strangers, 'other message')} came under the key meanwhile"
    if outcome.missing:
        yield (
            "missing is what had not arrived when this gave up waiting; `isthmus status` says "
            "whether it is still under way, `isthmus doctor` why"
        )
    if outcome.out_of_order and outcome.asked.exchange.order is OrderRule.STRICT:
        yield (
            f"{counted(outcome.out_of_order, 'message')} came after later ones of the same origin, "
            "as happens where a queue refuses a message for a while"
        )
    if outcome.interrupted:
        yield "it was ended before its time, without waiting for long"
    yield (
        f"{show_size(outcome.published_bytes)} were published; logs keep them, compressed, for the "
        "outage window, and they are in the ledger like all messages"
    )
    for left in outcome.left_behind:
        yield f"warning: a queue is left, and expires by itself: {left}"


def _verdict(outcome: Outcome) -> str:
    if outcome.problems:
        return f"NOT MEASURED: {'; '.join(outcome.problems)}"
    if outcome.all_arrived_once:
        return "ALL ARRIVED ONCE: every confirmed message came to every site that was listened at."
    wrong = []
    if outcome.missing:
        wrong.append(f"{counted(outcome.missing, 'message')} missing, counted at each site")
    if outcome.unflagged:
        wrong.append(
            f"{counted(outcome.unflagged, 'duplicate')} without the flag x-mesh-redelivered"
        )
    return f"NOT ALL ARRIVED ONCE: {'; '.join(wrong)}."
