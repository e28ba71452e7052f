"""The site's node, as `isthmus status` sees it, with what to do in each case."""

from __future__ import annotations

from typing import Any

from federation.mesh import Mesh
from isthmus.doctor.finding import Findings
from relay.packing.remote_acks import WAITING


def examine_node(told: dict[str, Any], mesh: Mesh, found: Findings) -> None:
    """`told` is the site's part of a status report."""
    state, reason = told["state"], told.get("reason", "")
    start = f"isthmus relay FILE --site {found.site}, or `isthmus up`"
    if state == "running":
        found.ok("node", "runs")
    elif state == "stopped":
        found.fault("node", f"stopped: {reason}", "do what the reason says")
    elif state == "down" and told.get("node_pid") is None:
        found.fault("node", reason, f"start it: {start}")
    elif state == "down":
        found.fault("node", reason, "see what is said of its broker; its log file has more")
    else:
        found.warn("node", f"{state}: {reason}", "wait, and look again")
    revision = told.get("revision")
    if revision is not None and revision != mesh.revision:
        found.fault(
            "revision",
            f"the node runs revision {revision}, the file is {mesh.revision}",
            "give that machine the same file",
        )
    examine_formats(told, mesh, found)
    for flow, why in told.get("standing_flows", {}).items():
        found.fault(
            "delivery", f"{flow} stands: {why}", "see what is said of that queue or exchange"
        )
    for exchange, why in told.get("waiting_exchanges", {}).items():
        if why == WAITING:
            links = "see what is said of the links that begin here: none that should carry it does"
            found.fault("egress", f"{exchange} is kept: {why}", links)
        else:
            found.fault("egress", f"{exchange} is not taken up: {why}", "run `isthmus apply`")
    if told.get("ledger_failure"):
        found.fault(
            "ledger",
            f"rows cannot be written as Parquet: {told['ledger_failure']}",
            "free disk, or mend the rights of the state folder; nothing is lost meanwhile",
        )


def examine_links(links: list[dict[str, Any]], found: Findings) -> None:
    """The links that begin at this site."""
    for link in links:
        if link["state"] != "running":
            found.fault(
                f"link {link['from']}-{link['to']}",
                f"{link['state']}: {link.get('reason') or 'no session yet'}",
                f"see what is said of {link['to']} and of the broker where they meet",
            )


def examine_formats(told: dict[str, Any], mesh: Mesh, found: Findings) -> None:
    """Whether the node knows the formats of its neighbours, and that of the file."""
    upgrade = "upgrade Isthmus there; what it does not take waits at its neighbours"
    for neighbour, why in told.get("not_understood", {}).items():
        found.fault("formats", f"nothing is taken from {neighbour}: {why}", upgrade)
    reads = told.get("formats")
    if reads is None:
        return
    oldest, newest = reads["batch"]
    if mesh.batch_format > newest:
        said = f"the node reads batches up to format {newest}, the file has batch_format"
        found.fault("formats", f"{said} {mesh.batch_format}", upgrade)
    elif not told.get("not_understood"):
        found.ok("formats", f"reads batches of format {oldest} to {newest}")
