"""Examination of a site's node by its status report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from federation.mesh import Mesh
from isthmus.doctor.finding import Findings
from isthmus.status import CLOSED, LEAVING
from relay.packing.egress_acks import WAITING


def examine_node(report: dict[str, Any], mesh: Mesh, found: Findings) -> None:
    """Examine a site's part of a status report."""
    state, reason = report["state"], report.get("reason", "")
    node = " --node NAME" if mesh.sites[found.site].nodes is not None else ""
    start = f"isthmus relay FILE --site {found.site}{node}, or `isthmus up`"
    if state == "running":
        found.ok("node", "runs")
    elif state == "stopped":
        found.fault("node", f"stopped: {reason}", "do what the reason says")
    elif state == "down" and report.get("node_pid") is None:
        found.fault("node", reason, f"start it: {start}")
    elif state == "down":
        found.fault("node", reason, "see what is said of its broker; its log file has more")
    elif state == "paused":
        found.warn("node", "paused: it takes and delivers nothing", _resume(found.site))
    elif state in LEAVING:
        ahead = "wait till it is drained, then take" if state == "draining" else "take"
        found.warn(
            "node",
            f"draining: {reason}" if state == "draining" else "drained: it receives nothing",
            f"{ahead} it out of the mesh file and apply; or, if it is to stay, "
            f"{_resume(found.site)}",
        )
    elif state in CLOSED:
        found.warn(
            "node",
            f"{state}: it receives nothing, for its slots to be changed",
            f"`isthmus reslot` says what is to be done; or {_resume(found.site)}",
        )
    elif state == "blocked":
        found.fault("node", f"blocked: {reason}", "see what is said of its broker and its links")
    elif state == "unknown":
        found.unknown(
            "node", reason, "run this where that node runs; or give the site an `admin:` address"
        )
    else:
        found.warn("node", f"{state}: {reason}", "wait, and look again")
    if report.get("core") == "native":
        found.ok("core", "native")
    elif report.get("core"):
        found.ok("core", "in Python: `make setup` builds the native one, where a node costs less")
    revision = report.get("revision")
    if revision is not None and revision != mesh.revision:
        found.fault(
            "revision",
            f"the node runs revision {revision}, the file is {mesh.revision}",
            "give that machine the same file",
        )
    examine_formats(report, mesh, found)
    for flow, why in report.get("standing_flows", {}).items():
        found.fault(
            "delivery", f"{flow} stands: {why}", "see what is said of that queue or exchange"
        )
    for exchange, why in report.get("waiting_exchanges", {}).items():
        if why == WAITING:
            links = "see what is said of the links that begin here: none that should carry it does"
            found.fault("egress", f"{exchange} is kept: {why}", links)
        else:
            found.fault("egress", f"{exchange} is not taken up: {why}", "run `isthmus apply`")
    if report.get("ledger_failure"):
        found.fault(
            "ledger",
            f"rows cannot be written as Parquet: {report['ledger_failure']}",
            "free disk, or mend the rights of the state folder; nothing is lost meanwhile",
        )


def _resume(site: str) -> str:
    return f"`isthmus resume FILE --site {site}`"


def examine_links(
    links: list[dict[str, Any]], sites: Mapping[str, dict[str, Any]], found: Findings
) -> None:
    """Examine the links that begin at the site; a state that an operator ordered is no fault."""
    for link in links:
        name, other = f"{link['from']}-{link['to']}", link["to"]
        if link["state"] == "paused":
            found.warn(
                f"link {name}",
                "paused: what it should carry waits in the log, for the outage window",
                f"`isthmus resume FILE --link {name}`",
            )
        elif link["state"] == "lagging":
            found.warn(
                f"link {name}",
                f"lagging: {link['reason']}",
                "a line that is too thin for what comes, or that was away: see if its lag shrinks",
            )
        elif link["state"] == "gap":
            found.fault(f"link {name}", link["reason"], f"`isthmus accept-gap FILE {link['from']}`")
        elif link["state"] != "running" and sites[other]["state"] in LEAVING:
            found.warn(
                f"link {name}",
                f"{other} is {sites[other]['state']}, and receives nothing",
                f"take {other} out of the mesh file and apply; or, if it is to stay, "
                f"{_resume(other)}",
            )
        elif link["state"] != "running" and sites[other]["state"] in CLOSED:
            found.warn(
                f"link {name}",
                f"{other} is {sites[other]['state']}, and receives nothing for now",
                f"`isthmus reslot` says what is to be done at {other}",
            )
        elif link["state"] != "running":
            found.fault(
                f"link {name}",
                f"{link['state']}: {link.get('reason') or 'no session yet'}",
                f"see what is said of {link['to']} and of the broker where they meet",
            )


def examine_formats(report: dict[str, Any], mesh: Mesh, found: Findings) -> None:
    """Check that the node knows the formats of its neighbours and of the mesh file."""
    waits = "what it does not take waits at its neighbours"
    upgrade = f"upgrade Isthmus there; {waits}"
    either = f"upgrade Isthmus there or give it the newest mesh file, as that says; {waits}"
    for neighbour, why in report.get("not_understood", {}).items():
        found.fault("formats", f"nothing is taken from {neighbour}: {why}", either)
    reads = report.get("formats")
    if reads is None:
        return
    oldest, newest = reads["batch"]
    if mesh.batch_format > newest:
        text = f"the node reads batches up to format {newest}, the file has batch_format"
        found.fault("formats", f"{text} {mesh.batch_format}", upgrade)
    elif not report.get("not_understood"):
        found.ok("formats", f"reads batches of format {oldest} to {newest}")
