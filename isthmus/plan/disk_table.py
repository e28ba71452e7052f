"""The disk that the outage window needs, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape

from federation.mesh_file.quantities import show_size
from isthmus.tables import Told, about, few, fill, table_of


def disk_table(told: Told, most: int) -> Iterator[RenderableType]:
    """By site, and what is too little; or how to ask for it."""
    disk = told["disk"]
    if disk is None:
        yield "disk that the outage window needs: say --rate 200/s --size 2KiB"
        return
    kept = about(told["retention_s"])
    assumed = disk["assumed"]
    title = (
        f"disk for {kept} (the outage window and its margin), {rates_said(assumed)}, "
        f"{assumed['size_bytes']:,} bytes each"
    )
    if assumed["compression"] != 1:
        title += f", compressed {assumed['compression']:g} times"
    table = table_of(
        title, "site", ">messages/s", ">log", ">node's state", ">log may take", "lasts"
    )
    yield fill(table, disk["rows"], _disk_row, most)
    if any(exchange["wants"] for exchange in told["exchanges"]):
        yield "Messages that sites narrow by `wants` are taken as spread evenly over these sites."
    if disk["short"]:
        yield escape(
            f"warning: the log may not hold the outage window at {few(disk['short'])}: raise "
            "log.max_bytes, or shorten outage_window"
        )


def _disk_row(row: Told) -> list[str]:
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


def rates_said(assumed: Told) -> str:
    said = []
    if assumed["rate_per_s"]:
        said.append(f"{assumed['rate_per_s']:g}/s to each exchange at each site that publishes")
    said += [f"{rate:g}/s to {name}" for name, rate in assumed["exchange_rates_per_s"].items()]
    said += [
        f"{one['rate_per_s']:g}/s to {one['exchange']} at {one['site']}"
        for one in assumed["flow_rates_per_s"]
    ]
    return ", ".join(said)
