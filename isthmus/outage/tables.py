"""Tables of an outage's cost for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape

from federation.mesh_file.quantities import show_duration, show_size
from federation.wording import counted, few
from isthmus.display import MOST_OF_ALL, JsonObject, about, fill, table_of
from isthmus.plan.expected_load import rates_text

CHANGED = 0.1
"""Relative change of a link's load below which the link counts as unchanged: copies that race on
redundant paths make small differences chance.
"""


def tables(report: JsonObject, most: int = MOST_OF_ALL) -> Group:
    """Render the whole cost."""
    parts: list[RenderableType] = [escape(_heading(report))]
    parts += _sites(report, most)
    parts += _links(report, most)
    parts += _logs(report, most)
    parts += map(escape, _notes(report))
    parts.append(escape(_verdict(report)))
    return Group(*(one for part in parts for one in (part, "")))


def _heading(report: JsonObject) -> str:
    assumed = report["assumed"]
    away = few([*report["sites_away"], *(f"link {one}" for one in _own_links(report))])
    text = (
        f"mesh {report['mesh']}: {away} away for {show_duration(report['outage_s'])}, at "
        f"{rates_text(assumed)}, {assumed['size_bytes']:,} bytes each"
    )
    if assumed["compression"] != 1:
        text += f", compressed {assumed['compression']:g} times"
    return (
        f"{text}; lines carry {show_size(assumed['line_bytes_per_s'])}/s where nothing else is "
        f"said. {counted(report['simulated_messages'], 'message')} in real nodes stood for all."
    )


def _own_links(report: JsonObject) -> list[str]:
    """Return links that fail on their own, not with a site."""
    sites = set(report["sites_away"])
    return [name for name in report["fails"] if name not in sites]


def _sites(report: JsonObject, most: int) -> Iterator[RenderableType]:
    rows = [{"name": name, **one} for name, one in report["sites"].items() if one["messages"]]
    if not rows:
        if not report["simulated_messages"]:
            yield "sites that lag: none; nothing is published meanwhile"
        elif any(one["slowed"] for one in report["sites"].values()):
            yield "sites that lag for want of a way: none; but lines on the way are too slow"
        else:
            yield "sites that lag: none; all comes another way"
        return
    table = table_of(
        "sites that lag when the outage ends",
        *("site", "behind", ">messages", ">bytes", ">oldest", ">catches up in", ">lost"),
    )
    yield fill(table, rows, _site_row, most)
    left = len(report["sites"]) - len(rows)
    if left:
        yield f"{counted(left, 'other site')} {'lags' if left == 1 else 'lag'} behind nobody."


def _site_row(row: JsonObject) -> list[str]:
    lost = sum(row["lost"].values())
    return [
        row["name"],
        few(list(row["behind"])),
        f"{row['messages']:,}",
        show_size(row["bytes"]),
        about(row["oldest_s"]),
        "NEVER" if row["catch_up_s"] is None else about(row["catch_up_s"]),
        f"{lost:,}" if lost else "-",
    ]


def _links(report: JsonObject, most: int) -> Iterator[RenderableType]:
    rows = [
        {"name": name, **one}
        for name, one in report["links"].items()
        if one["away"] or one["too_slow"] or _has_changed(one)
    ]
    table = table_of(
        "links",
        "link",
        ">before",
        ">meanwhile",
        ">change",
        ">of its line",
        ">backlog",
        ">drains in",
    )
    yield fill(table, rows, _link_row, most)
    left = len(report["links"]) - len(rows)
    if left:
        yield f"{counted(left, 'other link')} as before."


def _has_changed(one: JsonObject) -> bool:
    change = abs(one["bytes_per_s_meanwhile"] - one["bytes_per_s_before"])
    return bool(change > CHANGED * max(one["bytes_per_s_before"], 1))


def _link_row(row: JsonObject) -> list[str]:
    before, load = row["bytes_per_s_before"], row["bytes_per_s_meanwhile"]
    meanwhile, change = "away", "-"
    if not row["away"]:
        meanwhile = f"{show_size(load)}/s"
        change = f"{load / before - 1:+.0%}" if before else "new"
    drains = "-"
    if row["backlog_bytes"]:
        drains = "NEVER" if row["drain_s"] is None else about(row["drain_s"])
    return [
        row["name"],
        f"{show_size(before)}/s",
        meanwhile,
        change,
        f"{max(before, load) / row['line_bytes_per_s']:.0%}"
        + (": TOO SLOW" if row["too_slow"] else ""),
        show_size(row["backlog_bytes"]) if row["backlog_bytes"] else "-",
        drains,
    ]


def _logs(report: JsonObject, most: int) -> Iterator[RenderableType]:
    if not report["logs"]:
        return
    kept = about(report["needed"]["retention_s"])
    table = table_of(
        f"logs, for {kept} (outage and margin)",
        *("site", "keeps for", ">log", ">log may take", "is it enough"),
    )
    rows = [{"name": name, **one} for name, one in report["logs"].items()]
    yield fill(table, rows, _log_row, most)


def _log_row(row: JsonObject) -> list[str]:
    enough = "yes"
    if row["short"]:
        end = "takes nothing more" if row["on_full"] == "block" else "leaves gaps"
        enough = f"NO: after {about(row['lasts_s'])} it {end}"
    return [
        row["name"],
        few(row["keeps_for"]),
        show_size(row["log_bytes"]),
        "what it needs" if row["max_bytes"] is None else show_size(row["max_bytes"]),
        enough,
    ]


def _notes(report: JsonObject) -> Iterator[str]:
    for one in report["waits_in_egress"]:
        yield (
            f"{one['messages']:,} messages to {one['exchange']} wait at {one['site']} in its egress"
            " queue (`acks: remote`, and no neighbour's log can have them): its broker keeps them,"
            " and its log gets only the first 2,000, less than what is said above"
        )
    late: dict[str, int] = {}
    for one in report["sites"].values():
        for exchange, messages in one["late"].items():
            late[exchange] = late.get(exchange, 0) + messages
    for exchange, messages in late.items():
        yield (
            f"{messages:,} messages to {exchange} come later than its deadline, counted at each "
            "site: the audit calls them late"
        )
    for site in report["sites_away"]:
        yield f"{site} is away with its broker: nothing is published there meanwhile."
    slow = [name for name, one in report["links"].items() if one["too_slow"]]
    if slow:
        yield (
            f"warning: {few(slow)}: the line carries less than what comes, copies that race each "
            "other on redundant ways included"
        )
    for name, one in report["sites"].items():
        if one["slowed"]:
            yield (
                f"{name} lags by up to {sum(one['slowed'].values()):,} messages more, behind "
                f"{few(list(one['slowed']))}, before lines that are too slow meanwhile"
            )
    if report["gaps"]:
        stages = [f"{one['stage']} (at {one['site']})" for one in report["gaps"]]
        yield (f"stop at a gap, until somebody says `isthmus accept-gap`: {few(stages)}")


def _verdict(report: JsonObject) -> str:
    outage, window = report["outage_s"], report["file"]["outage_window_s"]
    text = (
        f"needs an outage_window of {show_duration(outage)}, which keeps logs for "
        f"{about(report['needed']['retention_s'])}; the file has {show_duration(window)}, which "
        f"keeps {about(report['file']['retention_s'])}"
    )
    if report["logs"]:
        name, most = max(report["logs"].items(), key=lambda one: one[1]["log_bytes"])
        text += f". The biggest log: {show_size(most['log_bytes'])} at {name}"
    if report["enough"]:
        return f"ENOUGH: nothing is lost. It {text}."
    return f"NOT ENOUGH: {'; '.join(_wrong(report))}. It {text}."


def _wrong(report: JsonObject) -> Iterator[str]:
    if report["never_catch_up"]:
        yield (
            f"{few(report['never_catch_up'])} would never catch up: a line on the way carries less "
            "than what comes new"
        )
    if report["lost_messages"]:
        yield f"{report['lost_messages']:,} messages would be lost, counted at each site"
    elif report["gaps"]:
        yield "nothing is lost, all comes another way, but links stop at a gap"
    elif report["outage_s"] > report["file"]["outage_window_s"]:
        yield "longer than the outage window: within its margin nothing is lost, but not promised"
    short = [name for name, one in report["logs"].items() if one["short"]]
    if short:
        yield f"log.max_bytes is too little at {few(short)}"
