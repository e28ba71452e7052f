"""What an outage comes to, as one JSON object; the tables are made of it."""

from __future__ import annotations

from typing import Any

from isthmus.outage.figures import Answer, LinkLoad, LogNeed, SiteLag
from isthmus.plan.assumed import assumed_of

Told = dict[str, Any]


def told_of(answer: Answer) -> Told:
    """Messages and bytes are rounded; times in seconds; what never ends is null."""
    question, mesh = answer.question, answer.mesh
    return {
        "mesh": mesh.name,
        "revision": mesh.revision,
        "fails": list(question.names),
        "links_away": [name for name, one in answer.links.items() if one.is_away],
        "sites_away": sorted(question.failure.sites),
        "outage_s": question.seconds,
        "assumed": {
            **assumed_of(question.rates, question.size, question.compression),
            "line_bytes_per_s": question.lines.everywhere,
            "line_bytes_per_s_of": dict(question.lines.links),
        },
        "simulated_messages": answer.simulated,
        "sites": {name: _site(one) for name, one in answer.sites.items()},
        "links": {name: _link(one) for name, one in answer.links.items()},
        "logs": {name: _log(one) for name, one in answer.logs.items()},
        "waits_in_egress": [
            {"exchange": flow.exchange, "site": flow.origin, "messages": round(messages)}
            for flow, messages in answer.held.items()
        ],
        "gaps": [{"site": site, "stage": stage} for site, stage in answer.gaps],
        "lost_messages": round(answer.lost),
        "never_catch_up": list(answer.never),
        "needed": {
            "outage_window_s": question.seconds,
            "retention_s": answer.needed_retention_s,
        },
        "file": {
            "outage_window_s": mesh.outage_window_s,
            "retention_s": mesh.retention_s,
        },
        "enough": answer.is_enough,
    }


def _site(one: SiteLag) -> Told:
    return {
        "behind": {origin: round(messages) for origin, messages in one.behind.items()},
        "messages": round(one.messages),
        "bytes": round(one.bytes),
        "oldest_s": one.oldest_s,
        "catch_up_s": one.catch_up_s,
        "lost": {origin: round(messages) for origin, messages in one.lost.items()},
        "slowed": {origin: round(messages) for origin, messages in one.slowed.items()},
        "late": {exchange: round(messages) for exchange, messages in one.late.items()},
    }


def _link(one: LinkLoad) -> Told:
    return {
        "away": one.is_away,
        "bytes_per_s_before": round(one.before),
        "bytes_per_s_meanwhile": round(one.meanwhile),
        "messages_per_s_before": round(one.messages_before, 3),
        "messages_per_s_meanwhile": round(one.messages_meanwhile, 3),
        "line_bytes_per_s": one.line,
        "too_slow": one.is_too_slow,
        "backlog_bytes": round(one.backlog),
        "drain_s": one.drain_s,
    }


def _log(one: LogNeed) -> Told:
    return {
        "keeps_for": list(one.links),
        "log_bytes": round(one.bytes),
        "max_bytes": one.limit.max_bytes,
        "on_full": one.limit.on_full.value,
        "lasts_s": one.lasts_s,
        "short": one.is_short,
    }
