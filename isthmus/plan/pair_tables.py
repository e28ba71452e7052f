"""Ways between sites and what may not fail, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.markup import escape

from federation.counted import counted
from federation.planning.availability import show_apart, show_part
from isthmus.tables import Told, availability_of, ends, few, fill, table_of

PAIR_WORDS = (
    "disjoint: ways that share no link / no site. joined: the part of the time that any way works, "
    "both ends working; apart: the rest of a year, in which messages wait. A line works 99 % of "
    "the time unless its `availability:` says otherwise."
)


def route_tables(routes: Told, most: int, *, alone: bool) -> Iterator[RenderableType]:
    """Pairs and single points of exchanges that share their routes; `alone`: all of them do."""
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


def _pair_row(row: Told) -> list[str]:
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
        return f"{shared[0]} from {few(list(ends))}"
    ways: dict[tuple[str, str], str] = {}
    for pair in pairs:
        back = pair[1], pair[0]
        if back in ways and back != pair:
            ways[back] = f"{pair[1]} ↔ {pair[0]}"
        else:
            ways[pair] = f"{pair[0]} → {pair[1]}" if back != pair else f"{pair[0]} ↔ {pair[1]}"
    return few(list(ways.values()))


def asked_pair(one: Told) -> RenderableType:
    """One pair in full, one way."""
    said = [f"{one['from']} → {one['to']}"]
    if one["exchanges"]:
        said[0] += f" (exchanges {', '.join(one['exchanges'])})"
    else:
        said[0] += " (no exchange is sent that way)"
    if one["never_via"]:
        said.append(f"  never via {few(one['never_via'])}")
    if one["availability"] is None:
        return escape("\n".join([*said, "  no way leads there"]))
    joined = availability_of(one["availability"])
    how = "exactly" if joined.is_exact else "sampled"
    said += [
        f"  joined {joined} of the time ({how}), {show_apart(joined.part)} a year apart",
        f"  ways that share no link: {one['link_disjoint']}, that share no site: "
        f"{one['site_disjoint']}",
        *(f"    {' → '.join(way)}" for way in one["ways"]),
    ]
    points = one["single_points"]
    lost = [*points["sites"], *(f"line {' – '.join(ends)}" for ends in points["links"])]
    if lost:
        said.append(f"  separated by the loss of {' or of '.join(lost)}")
    else:
        said.append("  no single site or line separates them")
    return escape("\n".join(said))
