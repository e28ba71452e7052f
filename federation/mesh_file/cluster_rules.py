"""Rules for a site that is a cluster of several broker nodes."""

from __future__ import annotations

from collections.abc import Iterator

from federation.mesh_file.problems import Severity
from federation.mesh_file.site_keys import SiteKeys
from federation.mesh_file.violation import Violation
from federation.mesh_file.yaml_tree import Location


def cluster_violations(name: str, site: SiteKeys) -> Iterator[Violation]:
    """Find mistakes in `brokers` and `replicas` of one site."""
    at = ("sites", name)
    if site.broker is not None and "brokers" in site.model_fields_set:
        yield Violation(
            (*at, "brokers"),
            "`brokers` beside a `broker`: `isthmus up` runs no cluster for this site",
            "take it out; or take `broker` out, for a private cluster",
            True,
        )
        return
    if site.brokers % 2 == 0:
        yield _even((*at, "brokers"), f"a cluster of {site.brokers} nodes outlives", site.brokers)
    if site.replicas is None:
        return
    if site.broker is None and site.replicas > site.brokers:
        yield Violation(
            (*at, "replicas"),
            f"{site.replicas} replicas need as many broker nodes, and there are {site.brokers}",
            f"write brokers: {site.replicas}, or no more than {site.brokers} replicas",
            depends_on=("brokers",),
        )
    elif site.replicas % 2 == 0:
        yield _even((*at, "replicas"), f"{site.replicas} replicas outlive", site.replicas)


def _even(at: Location, outlives: str, count: int) -> Violation:
    """Warn of a number that a smaller one is as good as; `outlives` is who does, with the verb."""
    return Violation(
        at,
        f"{outlives} the loss of no more nodes than {count - 1} would, as more than half have to "
        "be there",
        f"write {count - 1} or {count + 1}",
        severity=Severity.WARNING,
    )
