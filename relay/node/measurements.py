"""Figures of a process for its metrics alone, beside those of its report."""

from __future__ import annotations

import platform
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from federation.certificate_files import CertificateExpiry
from relay.delay_histogram import DelaySnapshot
from relay.node.node import SiteNode


def measured(
    report: Mapping[str, Any],
    nodes: Mapping[str, Sequence[SiteNode]],
    certificates: CertificateExpiry,
) -> dict[str, Any]:
    """Return a process's report with the figures for metrics. `nodes` are those of each site's
    slots.
    """
    mesh = next(iter(nodes.values()))[0].mesh
    delays = _acknowledgement_delays(slot for slots in nodes.values() for slot in slots)
    return {
        **report,
        "version": _version(),
        "python": platform.python_version(),
        "outage_window_s": mesh.outage_window_s,
        "retention_s": mesh.retention_s,
        "sites": {
            site: {
                **figures,
                **_of_site(nodes[site]),
                "certificates": certificates.of(mesh.sites[site]) if site in mesh.sites else {},
            }
            for site, figures in report["sites"].items()
        },
        "links": [
            {**link, "acknowledgement_delay": delays.get((link["from"], link["to"]))}
            for link in report["links"]
        ],
    }


@cache
def _version() -> str:
    """Return the version of the installed package; empty where a checkout is run uninstalled."""
    try:
        return metadata.version("isthmus")
    except metadata.PackageNotFoundError:
        return ""


def _of_site(slots: Sequence[SiteNode]) -> dict[str, Any]:
    running = [slot.stages for slot in slots if slot.stages is not None]
    memory_ms = min((stages.context.barrier.memory_ms for stages in running), default=None)
    packing = (stages.packer.metrics.delays.snapshot() for stages in running)
    return {
        "barrier_memory_s": None if memory_ms is None else memory_ms / 1000,
        "packing_delay": DelaySnapshot.total(packing),
        "delivery_delay": DelaySnapshot.total(slot.delays.stage.snapshot() for slot in slots),
        "end_to_end": _end_to_end(slots),
        **_disk(slots[0].folder),
    }


def _end_to_end(slots: Sequence[SiteNode]) -> dict[tuple[str, str], DelaySnapshot]:
    """Return the delays by origin, with the name of its site, and exchange. A slot has exchanges
    of its own, so that the slots of a site have no key together but after a change of slots.
    """
    parts: defaultdict[tuple[str, str], list[DelaySnapshot]] = defaultdict(list)
    for slot in slots:
        for (origin, exchange), histogram in slot.delays.end_to_end.items():
            name = slot.mesh.cluster_ids.get(origin, origin)
            parts[name, exchange].append(histogram.snapshot())
    return {key: DelaySnapshot.total(found) for key, found in parts.items()}


def _acknowledgement_delays(slots: Iterable[SiteNode]) -> dict[tuple[str, str], DelaySnapshot]:
    parts: defaultdict[tuple[str, str], list[DelaySnapshot]] = defaultdict(list)
    for slot in slots:
        if slot.stages is not None:
            for ends, snapshot in slot.stages.links.ack_delays():
                parts[ends].append(snapshot)
    return {ends: DelaySnapshot.total(found) for ends, found in parts.items()}


def _disk(folder: Path) -> dict[str, int]:
    """Return size and free bytes of the file system with a folder; nothing where it is away."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return {}
    return {"state_disk_bytes": usage.used + usage.free, "state_disk_free_bytes": usage.free}
