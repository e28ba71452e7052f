"""Figures of a node for `isthmus status` and the metrics."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from relay import core
from relay.log.run import LogState
from relay.node.parts import PAUSED
from relay.node.site_folder import STANDBY
from relay.operator.site_state import SiteState
from relay.packing.packer_metrics import PackerState

if TYPE_CHECKING:
    from relay.node.node import SiteNode


def site_report(node: SiteNode) -> dict[str, Any]:
    state, reason = _state(node)
    report: dict[str, Any] = {
        "node_pid": os.getpid(),
        "state": state.value,
        "reason": reason,
        "core": core.name(),
        "revision": node.mesh.revision,
        "file_problem": node.file_problem or node.holds.problem,
        "formats": node.formats.ranges,
        "egress_messages": node.waiting.egress,
        "gaps": [gap.as_json() for gap in node.gaps.open],
        "dead_letters_waiting": node.waiting.dead_letters,
        "quarantine_waiting": node.waiting.quarantine,
        **asdict(node.counters),
    }
    if connected := node.connected_to:
        report["connected_to"] = dict(connected)
    if node.shared_state is not None:
        report["slot"] = node.shared_state()
        report["orders_kept"] = node.holds.is_kept
    if node.contents is not None and node.contents.is_used:
        report["content"] = asdict(node.contents.counts)
    if node.copy_report is not None:
        report["takeovers"] = node.takeovers
        if node.stage == STANDBY and (copy := node.copy_report()) is not None:
            report["copy"] = copy
    stages = node.stages
    if stages is not None:
        metrics = stages.packer.metrics
        partitions = {name for one in node.mesh.exchanges.values() for name in one.partition_names}
        report |= {
            "packed": metrics.messages,
            "batches": metrics.batches,
            "packed_doubtful": metrics.doubtful,
            "unwanted": metrics.unwanted,
            "incarnations": metrics.incarnations,
            # An exchange that left the file may be gone from the broker as well.
            "waiting_exchanges": {
                name: why
                for name, why in stages.packer.status.exchanges.items()
                if name in partitions
            },
            "undelivered_messages": stages.undelivered.messages,
            "standing_flows": stages.deliverer.standing,
            "deferring_flows": stages.deliverer.deferring,
            "deferred_waiting": stages.deliverer.deferred,
        }
    if node.writer is not None:
        report["log"] = asdict(node.writer.counts) | {"fill": round(node.watch.room.fill, 3)}
    if stages is not None:
        incoming = report["links_in"] = stages.links.incoming()
        report["batches_refused"] = sum(one["refused"] for one in incoming)
        report["batches_not_authentic"] = sum(one["not_authentic"] for one in incoming)
        report["not_understood"] = stages.links.not_understood()
        if (group := stages.group.report()) is not None:
            report["group"] = group
        if stages.housekeeping.export_failure:
            report["ledger_failure"] = stages.housekeeping.export_failure
    return report


def link_reports(node: SiteNode) -> list[dict[str, Any]]:
    """Figures of the links that begin at this site."""
    return [] if node.stages is None else node.stages.links.reports()


def _state(node: SiteNode) -> tuple[SiteState, str]:
    """State for `isthmus status`, and why the state is not `running`."""
    if node.stage == "stopped":
        return SiteState.STOPPED, node.reason or "ended"
    if node.stage == STANDBY:
        return SiteState.STANDBY, node.reason
    if _is_blocked(node):
        return SiteState.BLOCKED, "the site's broker takes no publishes (memory or disk alarm)"
    if node.writer is not None and node.stage != "starting":
        state, why = node.writer.state
        if state is not LogState.RUNNING:
            return SiteState.DOWN, f"log: {state.value}: {why}"
    if node.contents is not None and (reason := node.contents.reason):
        return SiteState.DOWN, reason
    stages = node.stages
    if stages is not None and stages.packer.status.state is PackerState.DOWN:
        return SiteState.DOWN, f"packer: {stages.packer.status.reason}"
    if node.stage != "running":
        return SiteState.STARTING, node.reason
    if stages is not None and stages.deliverer.away:
        return SiteState.DOWN, stages.deliverer.away
    return _held(node)


def _held(node: SiteNode) -> tuple[SiteState, str]:
    """State that an operator's orders give to a running node."""
    leave = node.watch.leave
    if node.holds.present.quiescing:
        if leave.is_quiesced:
            return SiteState.QUIESCED, (
                "`isthmus reslot` goes on once its node has ended; to go on as before: `isthmus"
                f" resume FILE --site {node.site}`"
            )
        return SiteState.QUIESCING, "; ".join(leave.waiting)
    if node.holds.present.draining:
        if leave.is_drained:
            return SiteState.DRAINED, (
                "it may be taken out of the mesh file; to keep it: `isthmus resume FILE --site "
                f"{node.site}`"
            )
        return SiteState.DRAINING, "; ".join(leave.waiting)
    if node.holds.present.paused:
        return SiteState.PAUSED, PAUSED
    if node.watch.room.blocks:
        return SiteState.BLOCKED, f"nothing is taken from egress: {node.watch.room_note}"
    return SiteState.RUNNING, node.watch.room_note


def _is_blocked(node: SiteNode) -> bool:
    """True if the site's broker blocks publishers. RabbitMQ announces an alarm only on connections
    that publish, so any stage that had something to publish may know.
    """
    stages = node.stages
    return stages is not None and (
        stages.deliverer.blocked
        or stages.packer.status.state is PackerState.BLOCKED
        or stages.links.blocked
    )
