"""Tables of a plan for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape

from federation.mesh_file.quantities import show_duration, show_size
from federation.planning.availability import show_apart, show_part
from federation.wording import counted, few
from isthmus.display import (
    MOST_OF_ALL,
    MOST_ROWS,
    JsonObject,
    about,
    availability_of,
    ends,
    fill,
    span_text,
    table_of,
)
from isthmus.plan.changes import broker_lines, change_lines
from isthmus.plan.expected_load import rates_text
from isthmus.plan.group_plan import GROUP_WORDS, group_parts


def tables(report: JsonObject, *, everything: bool = False) -> Group:
    """Render the whole plan."""
    most = MOST_OF_ALL if everything else MOST_ROWS
    parts: list[RenderableType] = [_heading(report), _links(report, most)]
    parts += group_parts(report["multicast"], most)
    parts.append(_exchanges(report))
    for routes in report["routes"]:
        parts += route_tables(routes, most, alone=len(report["routes"]) == 1)
    parts.append(PAIR_WORDS)
    if report["multicast"] is not None:
        parts.append(GROUP_WORDS)
    parts += (pair_details(one) for one in report["asked"])
    parts += disk_table(report, most)
    parts += change_lines(report["apply"], most)
    if report["brokers"] is not None:
        parts.append(broker_lines(report["brokers"], most))
    return Group(*_apart(parts))


def _apart(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield part
        yield ""


def _heading(report: JsonObject) -> str:
    sites = sum(len(group["sites"]) for group in report["groups"])
    text = (
        f"mesh {report['mesh']}, revision {report['revision']}: {counted(sites, 'site')}, "
        f"{counted(len(report['links']), 'link')} ({report['rule']} rule), "
        f"{counted(len(report['exchanges']), 'exchange')}; an outage of "
        f"{show_duration(report['outage_window_s'])} mends by itself"
    )
    if report["rule"] == "complete":
        text += "; only the origin of a message sends it on, so that only the direct link counts"
    return escape(text)


# -- links and exchanges --------------------------------------------------------------------------


def _links(report: JsonObject, most: int) -> RenderableType:
    table = table_of("links", "between", ">lines", "meet at the broker of", "dials", "works")
    return fill(table, report["link_groups"], _link_row, most)


def _link_row(row: JsonObject) -> list[str]:
    dials = row["dials"]
    if row["via"]:
        dials += f" ({counted(row['via'], 'link')} via another address)"
    return [ends(row), f"{row['count']:,}", row["meets_at"], dials, span_text(row["availability"])]


def _exchanges(report: JsonObject) -> RenderableType:
    if not report["exchanges"]:
        return "exchanges: none in the file; what follows is of every pair of sites"
    table = table_of("exchanges", "exchange", "published at", "delivered at", "of note")
    for one in report["exchanges"]:
        table.add_row(
            *map(escape, (one["name"], one["from_said"], one["to_said"], "; ".join(_notes(one))))
        )
    return table


def _notes(exchange: JsonObject) -> Iterator[str]:
    keys = exchange["keys"]
    if keys and keys != ["#"]:
        yield f"keys {few(keys)}"
    if exchange["wants"]:
        yield f"narrowed at {exchange['narrowed_said']}"
    if exchange["never_via"]:
        yield f"never via {exchange['never_via_said']}"
    if (over := exchange["over_group"]) is not None:
        yield "over the group" if over["goes"] else f"by links: {over['why']}"
    if exchange["mode"] == "split":
        yield f"split: bind to {exchange['name']}.in"


PAIR_WORDS = (
    "disjoint: ways that share no link / no site. joined: the part of the time that any way works, "
    "both ends working; apart: the rest of a year, in which messages wait. A line works 99 % of "
    "the time unless its `availability:` says otherwise."
)


def route_tables(routes: JsonObject, most: int, *, alone: bool) -> Iterator[RenderableType]:
    """Render pairs and single points of failure of exchanges with the same routes; `alone` if all
    have.
    """
    of_what = "" if alone else f": {', '.join(routes['exchanges'])}"
    if not routes["pairs"]:
        yield escape(f"ways between sites{of_what}: none that an exchange needs")
        return
    title = f"ways between sites{of_what}"
    table = table_of(title, "from, to", ">pairs", ">hops", ">disjoint", "joined", "apart")
    yield fill(table, routes["pairs"], _pair_row, most)
    points = routes["single_points"]
    if not points:
        yield escape(f"single points of failure{of_what}: none")
        return
    table = table_of(f"single points of failure{of_what}", "losing", ">how many", ">cuts", "apart")
    yield fill(table, points, _point_row, most)


def _pair_row(row: JsonObject) -> list[str]:
    start = [ends(row), f"{row['pairs']:,}"]
    if row["availability"] is None:
        return [*start, "-", "0", "no way leads there", "always"]
    worst, best = map(availability_of, (row["availability"], row["best_availability"]))
    joined, apart = str(worst), show_apart(worst.part)
    if show_part(worst.part) != show_part(best.part):
        joined = f"{joined} … {show_part(best.part)} (least: {' → '.join(row['worst'])})"
        apart = f"{apart} … {show_apart(best.part)}"
    disjoint = f"{row['link_disjoint']} / {row['site_disjoint']}"
    return [*start, str(row["hops"]), disjoint, joined, apart]


def _point_row(row: JsonObject) -> list[str]:
    what = " – ".join(row["groups"])
    if row["kind"] == "link":
        what = f"line {what}"
    each = "each " if row["count"] > 1 else ""
    pairs = f"{each}{counted(row['pairs_each'], 'pair')}"
    return [what, f"{row['count']:,}", pairs, _separated(row["separates"])]


def _separated(separates: Sequence[JsonObject]) -> str:
    """Return `a from b, c` if `a` is in every pair, else the first pairs."""
    pairs = [(one["from"], one["to"]) for one in separates]
    shared = [end for end in pairs[0] if all(end in pair for pair in pairs)]
    if shared and len(pairs) > 1:
        ends = dict.fromkeys(end for pair in pairs for end in pair if end != shared[0])
        if (shared[0], shared[0]) in pairs:
            ends = {shared[0]: None, **ends}
        return f"{shared[0]} from {few(list(ends))}"
    ways: dict[tuple[str, str], str] = {}
    for pair in pairs:
        back = pair[1], pair[0]
        if back in ways and back != pair:
            ways[back] = f"{pair[1]} ↔ {pair[0]}"
        else:
            ways[pair] = f"{pair[0]} → {pair[1]}" if back != pair else f"{pair[0]} ↔ {pair[1]}"
    return few(list(ways.values()))


def pair_details(one: JsonObject) -> RenderableType:
    """Render the details of a pair in one direction."""
    lines = [f"{one['from']} → {one['to']}"]
    if one["exchanges"]:
        lines[0] += f" (exchanges {', '.join(one['exchanges'])})"
    else:
        lines[0] += " (no exchange is sent that way)"
    if one["never_via"]:
        lines.append(f"  never via {few(one['never_via'])}")
    if one["availability"] is None:
        return escape("\n".join([*lines, "  no way leads there"]))
    joined = availability_of(one["availability"])
    how = "exactly" if joined.is_exact else "sampled"
    lines += [
        f"  joined {joined} of the time ({how}), {show_apart(joined.part)} a year apart",
        f"  ways that share no link: {one['link_disjoint']}, that share no site: "
        f"{one['site_disjoint']}",
        *(f"    {' → '.join(way)}" for way in one["ways"]),
    ]
    points = one["single_points"]
    lost = [*points["sites"], *(f"line {' – '.join(ends)}" for ends in points["links"])]
    if lost:
        lines.append(f"  separated by the loss of {' or of '.join(lost)}")
    else:
        lines.append("  no single site or line separates them")
    return escape("\n".join(lines))


def disk_table(report: JsonObject, most: int) -> Iterator[RenderableType]:
    """Render disk need by site and warnings, or a hint how to get them."""
    disk = report["disk"]
    if disk is None:
        yield "disk that the outage window needs: say --rate 200/s --size 2KiB"
        return
    kept = about(report["retention_s"])
    assumed = disk["assumed"]
    title = (
        f"disk for {kept} (the outage window and its margin), {rates_text(assumed)}, "
        f"{assumed['size_bytes']:,} bytes each"
    )
    if assumed["compression"] != 1:
        title += f", compressed {assumed['compression']:g} times"
    table = table_of(
        title, "site", ">messages/s", ">log", ">node's state", ">log may take", "lasts"
    )
    yield fill(table, disk["rows"], _disk_row, most)
    if any(exchange["wants"] for exchange in report["exchanges"]):
        yield "Messages that sites narrow by `wants` are taken as spread evenly over these sites."
    if disk["short"]:
        yield escape(
            f"warning: the log may not hold the outage window at {few(disk['short'])}: raise "
            "log.max_bytes, or shorten outage_window"
        )


def _disk_row(row: JsonObject) -> list[str]:
    limit = "what it needs" if row["max_bytes"] is None else show_size(row["max_bytes"])
    lasts = "" if row["lasts_s"] is None else about(row["lasts_s"])
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
