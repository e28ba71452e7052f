"""Part of docs/metrics.md on the metrics of nodes, made from the catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from relay.admin.metrics.catalogue import CATALOGUE
from relay.admin.metrics.definition import MetricDefinition, ReportSection

_HEAD = """# Metrics

*Made from the catalogue in `relay/admin/metrics/`, by `python scripts/metrics_page.py`.*

`GET /metrics` at a node's [admin port](operations.md#seeing) serves these in Prometheus's text
format. Beside them stand, for this release alone, the names of the former one; a scrape
configuration leaves those out with `params: {names: [new]}` (`/metrics?names=new`). Seconds and
bytes are the only units. Counters begin anew with the process. A figure that is not known is
absent.

A state is a state set, with a series for each state: that of the present state is 1, the others
are 0. So `isthmus_link_state{isthmus_link_state="running"} == 0` finds the links that do not run.

The process's own processor time, memory, descriptors and start are the `process_*` of
[prometheus-client](https://prometheus.github.io/client_python/collector/).
"""
_SECTIONS = {
    ReportSection.PROCESS: ("The process and its mesh", "One row a process."),
    ReportSection.SITE: ("Sites", "The sites that the process serves, which may be several."),
    ReportSection.FLOW: (
        "Delivered messages, from end to end",
        "By the site at which they were published, and the exchange.",
    ),
    ReportSection.LOG: ("Logs", "Each site's log, as its node writes and checks the log."),
    ReportSection.LINK: (
        "Links",
        "Links out of the sites here: `from` is such a site. Their lanes have names of their own,"
        " so that sums count nothing twice.",
    ),
    ReportSection.LANE: (
        "Lanes of links",
        "In a mesh with lanes: each lane of a link by itself.",
    ),
    ReportSection.LINK_RECEIVER: (
        "Receivers of links",
        "Links into the sites here: `to` is such a site.",
    ),
    ReportSection.LANE_RECEIVER: ("Lanes of receivers", "In a mesh with lanes."),
    ReportSection.SLOT: (
        "Slots of sites with several nodes",
        "Each node of such a site serves its own, while it stands by too"
        " ([cluster.md](cluster.md#seeing)). All but `isthmus_slot_held` are of the node that runs"
        " the slot.",
    ),
    ReportSection.COPY: ("Copies of slots", "Of a node that stands by."),
    ReportSection.CONTENT: (
        "Content stores",
        "Of a site that [keeps large messages](cluster.md#large-messages) in its Cassandra, or has"
        " kept some: by slot, of each node that has run the slot.",
    ),
    ReportSection.GROUP: (
        "Multicast group",
        "Sites of a mesh with a [group](multicast.md#seeing). Counts begin anew when the site joins"
        " anew.",
    ),
    ReportSection.HEARD: (
        "Other sites of the group",
        "Each other site, by what comes from there.",
    ),
}


def node_metrics() -> str:
    """Return the page's part on the metrics of nodes."""
    sections = [
        "\n".join((f"## {title}\n", f"{text}\n", *_table(_of(section))))
        for section, (title, text) in _SECTIONS.items()
    ]
    return "\n\n".join((_HEAD.rstrip(), *sections)) + "\n"


def _of(section: ReportSection) -> list[MetricDefinition]:
    return [metric for metric in CATALOGUE if metric.section is section]


def _table(metrics: Iterable[MetricDefinition]) -> list[str]:
    rows = [
        f"| `{metric.name}` | {metric.type.value} | {', '.join(metric.labels)} |"
        f" {metric.help}{_states(metric)} | {f'`{metric.old}`' if metric.old else ''} |"
        for metric in metrics
    ]
    return ["| metric | type | labels | meaning | name in 0.2 |", "|---|---|---|---|---|", *rows]


def _states(metric: MetricDefinition) -> str:
    return f" States: {', '.join(metric.states)}." if metric.states else ""
