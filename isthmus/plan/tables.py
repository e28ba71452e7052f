"""What `isthmus plan` shows to people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.markup import escape

from federation.counted import counted
from federation.mesh_file.quantities import show_duration
from isthmus.plan.change_lines import broker_lines, change_lines
from isthmus.plan.disk_table import disk_table
from isthmus.plan.pair_tables import PAIR_WORDS, asked_pair, route_tables
from isthmus.tables import (
    MOST_OF_ALL,
    MOST_ROWS,
    Told,
    ends,
    few,
    fill,
    said_span,
    table_of,
)


def tables(told: Told, *, everything: bool = False) -> Group:
    """The whole plan."""
    most = MOST_OF_ALL if everything else MOST_ROWS
    parts: list[RenderableType] = [_heading(told), _links(told, most), _exchanges(told)]
    for routes in told["routes"]:
        parts += route_tables(routes, most, alone=len(told["routes"]) == 1)
    parts.append(PAIR_WORDS)
    parts += (asked_pair(one) for one in told["asked"])
    parts += disk_table(told, most)
    parts += change_lines(told["apply"], most)
    if told["brokers"] is not None:
        parts.append(broker_lines(told["brokers"], most))
    return Group(*_apart(parts))


def _apart(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield part
        yield ""


def _heading(told: Told) -> str:
    sites = sum(len(group["sites"]) for group in told["groups"])
    said = (
        f"mesh {told['mesh']}, revision {told['revision']}: {counted(sites, 'site')}, "
        f"{counted(len(told['links']), 'link')} ({told['rule']} rule), "
        f"{counted(len(told['exchanges']), 'exchange')}; an outage of "
        f"{show_duration(told['outage_window_s'])} mends by itself"
    )
    if told["rule"] == "complete":
        said += "; only the origin of a message sends it on, so that only the direct link counts"
    return escape(said)


# -- links and exchanges --------------------------------------------------------------------------


def _links(told: Told, most: int) -> RenderableType:
    table = table_of("links", "between", ">lines", "meet at the broker of", "dials", "works")
    return fill(table, told["link_groups"], _link_row, most)


def _link_row(row: Told) -> list[str]:
    dials = row["dials"]
    if row["via"]:
        dials += f" ({counted(row['via'], 'link')} via another address)"
    return [ends(row), f"{row['count']:,}", row["meets_at"], dials, said_span(row["availability"])]


def _exchanges(told: Told) -> RenderableType:
    if not told["exchanges"]:
        return "exchanges: none in the file; what follows is of every pair of sites"
    table = table_of("exchanges", "exchange", "published at", "delivered at", "of note")
    for one in told["exchanges"]:
        table.add_row(
            *map(escape, (one["name"], one["from_said"], one["to_said"], "; ".join(_notes(one))))
        )
    return table


def _notes(exchange: Told) -> Iterator[str]:
    keys = exchange["keys"]
    if keys and keys != ["#"]:
        yield f"keys {few(keys)}"
    if exchange["wants"]:
        yield f"narrowed at {exchange['narrowed_said']}"
    if exchange["never_via"]:
        yield f"never via {exchange['never_via_said']}"
    if exchange["mode"] == "split":
        yield f"split: bind to {exchange['name']}.in"
