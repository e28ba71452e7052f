"""What `isthmus plan` shows to people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from federation.availability import Availability, show_apart, show_part
from federation.durations import show_duration
from federation.sizes import show_size

Told = dict[str, Any]
MOST_SAID = 3
"""Names or pairs that are said one by one before the rest is counted."""
MOST_ROWS = 40
"""Of a table, unless all are asked for."""
MOST_OF_ALL = 2000
"""Then too: what is more is for programs."""
_WORDS = (
    "disjoint: ways that share no link / no site. joined: the part of the time that any way works, "
    "both ends working; apart: the rest of a year, in which messages wait. A line works 99 % of "
    "the time unless its `availability:` says otherwise."
)


def tables(told: Told, *, everything: bool = False) -> Group:
    """The whole plan."""
    most = MOST_OF_ALL if everything else MOST_ROWS
    parts: list[RenderableType] = [_heading(told), _links(told, most), _exchanges(told)]
    for routes in told["routes"]:
        parts += _routes(routes, most, alone=len(told["routes"]) == 1)
    parts.append(_WORDS)
    parts += (_asked(one) for one in told["asked"])
    parts += _disk(told, most)
    parts += _changes(told["apply"], most)
    if told["brokers"] is not None:
        parts.append(_brokers(told["brokers"], most))
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


def _table(title: str, *headings: str) -> Table:
    """Headings that begin with `>` are of figures."""
    table = Table(title=escape(title), title_justify="left")
    for heading in headings:
        side = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=side, overflow="fold")  # type: ignore[arg-type]
    return table


def _fill(
    table: Table, items: Sequence[Told], row: Callable[[Told], list[str]], most: int
) -> RenderableType:
    for item in items[:most]:
        table.add_row(*map(escape, row(item)))
    left = len(items) - most
    if left <= 0:
        return table
    return Group(table, f"and {left:,} more rows: {_more(most)}")


def _more(most: int) -> str:
    return "--json has them" if most == MOST_OF_ALL else "--all"


# -- links and exchanges --------------------------------------------------------------------------


def _links(told: Told, most: int) -> RenderableType:
    table = _table("links", "between", ">lines", "meet at the broker of", "dials", "works")
    return _fill(table, told["link_groups"], _link_row, most)


def _link_row(row: Told) -> list[str]:
    dials = row["dials"]
    if row["via"]:
        dials += f" ({counted(row['via'], 'link')} via another address)"
    return [_ends(row), f"{row['count']:,}", row["meets_at"], dials, _span(row["availability"])]


def _exchanges(told: Told) -> RenderableType:
    table = _table("exchanges", "exchange", "published at", "delivered at", "of note")
    for one in told["exchanges"]:
        table.add_row(
            *map(escape, (one["name"], one["from_said"], one["to_said"], "; ".join(_notes(one))))
        )
    return table


def _notes(exchange: Told) -> Iterator[str]:
    keys = exchange["keys"]
    if keys and keys != ["#"]:
        yield f"keys {_few(keys)}"
    if exchange["wants"]:
        yield f"narrowed at {exchange['narrowed_said']}"
    if exchange["never_via"]:
        yield f"never via {exchange['never_via_said']}"
    if exchange["mode"] == "split":
        yield f"split: bind to {exchange['name']}.in"


# -- pairs ----------------------------------------------------------------------------------------


def _routes(routes: Told, most: int, *, alone: bool) -> Iterator[RenderableType]:
    of_what = "" if alone else f": {', '.join(routes['exchanges'])}"
    if not routes["pairs"]:
        yield escape(f"ways between sites{of_what}: none that an exchange needs")
        return
    title = f"ways between sites{of_what}"
    table = _table(title, "from, to", ">pairs", ">hops", ">disjoint", "joined", "apart")
    yield _fill(table, routes["pairs"], _pair_row, most)
    points = routes["single_points"]
    if not points:
        yield escape(f"single points of failure{of_what}: none")
        return
    table = _table(f"single points of failure{of_what}", "losing", ">how many", ">cuts", "apart")
    yield _fill(table, points, _point_row, most)


def _pair_row(row: Told) -> list[str]:
    start = [_ends(row), f"{row['pairs']:,}"]
    if row["availability"] is None:
        return [*start, "-", "0", "no way leads there", "always"]
    worst, best = map(_availability, (row["availability"], row["best_availability"]))
    joined, apart = str(worst), show_apart(worst.part)
    if show_part(worst.part) != show_part(best.part):
        joined = f"{joined} … {show_part(best.part)} (least: {' → '.join(row['worst'])})"
        apart = f"{apart} … {show_apart(best.part)}"
    disjoint = f"{row['link_disjoint']} / {row['site_disjoint']}"
    return [*start, str(row["hops"]), disjoint, joined, apart]


def _point_row(row: Told) -> list[str]:
    what = " – ".join(row["groups"])
    if row["kind"] == "link":
        what = f"line {what}"
    each = "each " if row["count"] > 1 else ""
    pairs = f"{each}{counted(row['pairs_each'], 'pair')}"
    return [what, f"{row['count']:,}", pairs, _separated(row["separates"])]


def _separated(separates: Sequence[Told]) -> str:
    """`a from b, c` if every pair has `a`, else the first pairs."""
    pairs = [(one["from"], one["to"]) for one in separates]
    shared = [end for end in pairs[0] if all(end in pair for pair in pairs)]
    if shared and len(pairs) > 1:
        ends = dict.fromkeys(end for pair in pairs for end in pair if end != shared[0])
        if (shared[0], shared[0]) in pairs:
            ends = {shared[0]: None, **ends}
        return f"{shared[0]} from {_few(list(ends))}"
    ways: dict[tuple[str, str], str] = {}
    for pair in pairs:
        back = pair[1], pair[0]
        if back in ways and back != pair:
            ways[back] = f"{pair[1]} ↔ {pair[0]}"
        else:
            ways[pair] = f"{pair[0]} → {pair[1]}" if back != pair else f"{pair[0]} ↔ {pair[1]}"
    return _few(list(ways.values()))


def _asked(one: Told) -> RenderableType:
    said = [f"{one['from']} → {one['to']}"]
    if one["exchanges"]:
        said[0] += f" (exchanges {', '.join(one['exchanges'])})"
    else:
        said[0] += " (no exchange is sent that way)"
    if one["never_via"]:
        said.append(f"  never via {_few(one['never_via'])}")
    if one["availability"] is None:
        return escape("\n".join([*said, "  no way leads there"]))
    joined = _availability(one["availability"])
    how = "exactly" if joined.is_exact else "sampled"
    said += [
        f"  joined {joined} of the time ({how}), {show_apart(joined.part)} a year apart",
        f"  {counted(one['link_disjoint'], 'way')} that share no link, "
        f"{counted(one['site_disjoint'], 'way')} that share no site:",
        *(f"    {' → '.join(way)}" for way in one["ways"]),
    ]
    points = one["single_points"]
    lost = [*points["sites"], *(f"line {' – '.join(ends)}" for ends in points["links"])]
    if lost:
        said.append(f"  separated by the loss of {' or of '.join(lost)}")
    else:
        said.append("  no single site or line separates them")
    return escape("\n".join(said))


# -- disk -----------------------------------------------------------------------------------------


def _disk(told: Told, most: int) -> Iterator[RenderableType]:
    disk = told["disk"]
    if disk is None:
        yield "disk that the outage window needs: say --rate 200/s --size 2KiB"
        return
    kept = _about(told["retention_s"])
    assumed = disk["assumed"]
    title = (
        f"disk for {kept} (the outage window and its margin), {_rates(assumed)}, "
        f"{assumed['size_bytes']:,} bytes each"
    )
    if assumed["compression"] != 1:
        title += f", compressed {assumed['compression']:g} times"
    table = _table(title, "site", ">messages/s", ">log", ">node's state", ">log may take", "lasts")
    yield _fill(table, disk["rows"], _disk_row, most)
    if any(exchange["wants"] for exchange in told["exchanges"]):
        yield "Messages that sites narrow by `wants` are taken as spread evenly over these sites."
    if disk["short"]:
        yield escape(
            f"warning: the log may not hold the outage window at {_few(disk['short'])}: raise "
            "log.max_bytes, or shorten outage_window"
        )


def _disk_row(row: Told) -> list[str]:
    limit = "what it needs" if row["max_bytes"] is None else show_size(row["max_bytes"])
    lasts = "" if row["lasts_s"] is None else _about(row["lasts_s"])
    if row["short"]:
        end = "takes nothing more" if row["on_full"] == "block" else "leaves gaps"
        lasts = f"TOO SHORT: {lasts}, then it {end}"
    return [
        row["label"],
        f"{row['messages_per_s']:,.4g}",
        show_size(row["log_bytes"]),
        show_size(row["state_bytes"]),
        limit,
        lasts,
    ]


def _rates(assumed: Told) -> str:
    said = []
    if assumed["rate_per_s"]:
        said.append(f"{assumed['rate_per_s']:g}/s to each exchange at each site that publishes")
    said += [f"{rate:g}/s to {name}" for name, rate in assumed["exchange_rates_per_s"].items()]
    said += [
        f"{one['rate_per_s']:g}/s to {one['exchange']} at {one['site']}"
        for one in assumed["flow_rates_per_s"]
    ]
    return ", ".join(said)


# -- apply ----------------------------------------------------------------------------------------


def _changes(apply: Told, most: int) -> Iterator[RenderableType]:
    where = f"from {apply['state']}"
    if not apply["known"]:
        yield escape(
            f"what apply would change: unknown, nothing was applied {where} (--state names another)"
        )
        return
    if not apply["changes"] and not apply["never"]:
        yield escape(
            f"apply would change nothing: revision {apply['revision']} was applied {where}"
        )
        return
    said = [f"apply would change, from revision {apply['revision']} on:"]
    for revision, lines in apply["changes"].items():
        said.append(f"  since {revision}, applied {where}:")
        if lines is None:
            said.append("    unknown: what that revision was is not kept")
            continue
        said += (f"    {line}" for line in lines[:most])
        if len(lines) > most:
            said.append(f"    and {len(lines) - most:,} more: {_more(most)}")
    if apply["never"]:
        said.append(f"  nothing was applied {where} at {_few(apply['never'])}")
    yield escape("\n".join(said))


def _brokers(brokers: dict[str, Told], most: int) -> RenderableType:
    """Sites where the same would be done together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for site, one in brokers.items():
        if one["changes"] is None:
            said: tuple[str, ...] = (f"unknown: {one['unknown']}",)
        else:
            said = tuple(one["changes"]) or ("nothing",)
        alike.setdefault(said, []).append(site)
    lines = ["by what the brokers say, apply would do:"]
    for said, sites in list(alike.items())[:most]:
        lines.append(f"  at {_few(sites)}:")
        lines += (f"    {line}" for line in said[:most])
        if len(said) > most:
            lines.append(f"    and {len(said) - most:,} more: {_more(most)}")
    left = [site for sites in list(alike.values())[most:] for site in sites]
    if left:
        lines.append(f"  and at {counted(len(left), 'site')} more: {_more(most)}")
    return escape("\n".join(lines))


# -- words ----------------------------------------------------------------------------------------


def counted(number: int, noun: str) -> str:
    """`1 link`, `2 links`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _ends(row: Told) -> str:
    if row["from"] == row["to"]:
        return f"among {row['from']}"
    return f"{row['from']} {'↔' if row['both_ways'] else '→'} {row['to']}"


def _few(names: Sequence[str]) -> str:
    said = ", ".join(names[:MOST_SAID])
    left = len(names) - MOST_SAID
    return f"{said} and {left:,} more" if left > 0 else said


def _availability(told: Told) -> Availability:
    return Availability(told["part"], told["standard_error"])


def _span(told: Told) -> str:
    least, most = show_part(told["least"]), show_part(told["most"])
    return least if least == most else f"{least} … {most}"


def _about(seconds: float) -> str:
    """A duration in one or two digits: `3.2 d`."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
