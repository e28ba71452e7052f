"""Places where pending messages wait, derived from the logs that have their batches.

A batch in the destination's log waits for the deliverer there; any other batch waits for the links
from logs that have it to logs on the way that do not; a big message with unpacked pieces waits for
its origin's packer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from federation.mesh import ForwardingRule, Mesh
from spark_audit.compare import batches
from spark_audit.compare.assumptions import Assumptions
from spark_audit.ledgers.source import LedgerSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def waits_for(
    mesh: Mesh, exchange: str, origin: str, destination: str, having: Collection[str]
) -> list[str]:
    """Return the waiting places in the mesh file's words. `having`: sites whose logs have the
    batch; all sites by name. `mesh` is the present mesh, whose links a waiting batch takes.
    """
    if destination in having:
        return [f"deliverer of {destination}"]
    settings = mesh.exchanges.get(exchange)
    kept_off = set(settings.never_via) if settings is not None else set()
    links = [link for link in mesh.links if not {link.sender, link.receiver} & kept_off]
    having = {origin, *having}
    if mesh.rule is ForwardingRule.COMPLETE:
        having = {origin}
        links = [link for link in links if link.sender == origin]
    lacking, new = {destination}, {destination}
    while new:
        new = {link.sender for link in links if link.receiver in new} - having - lacking
        lacking |= new
    last = [link.name for link in links if link.sender in having and link.receiver in lacking]
    return [f"link {name}" for name in sorted(last)] or [f"a way from {origin} to {destination}"]


def pending_places(
    assumptions: Assumptions, source: LedgerSource, messages: DataFrame
) -> list[dict[str, Any]]:
    """Return the pending messages by place (origin, destination, exchange, waits_for, messages,
    since_ms), from the links' rows of their batches.
    """
    from pyspark.sql import functions as F  # noqa: N812

    pending = messages.where("verdict = 'pending'")
    if not pending.head(1):
        return []
    marks = ("is_partial", "is_in_gap")
    by_batch = pending.groupBy(
        "origin", "at", "exchange", F.col("batch.series"), F.col("batch.sequence"), *marks
    ).agg(F.count("at").alias("messages"), F.min("published_ms").alias("since_ms"))
    linked = (
        source.rows(("linked_in", "linked_out"))
        .where("event = 'batch' AND (pieces IS NULL OR fragment + 1 = pieces)")
        .withColumn("here", assumptions.cluster_of())
        .withColumn("there", assumptions.cluster_of("neighbour"))
        .selectExpr(*batches.NAME, "CASE stage WHEN 'linked_in' THEN here ELSE there END AS log")
        .join(by_batch.select("series", "sequence").distinct(), ["series", "sequence"], "left_semi")
        .groupBy("series", "sequence")
        .agg(F.array_sort(F.collect_set("log")).alias("logs"))
    )
    rows = (
        by_batch.join(linked, ["series", "sequence"], "left")
        .groupBy("origin", "at", "exchange", "logs", *marks)
        .agg(F.sum("messages"), F.min("since_ms"))
        .collect()
    )
    return _by_place(assumptions, rows)


def _by_place(assumptions: Assumptions, rows: list[Any]) -> list[dict[str, Any]]:
    names = assumptions.names
    found: dict[tuple[str, str, str, tuple[str, ...]], list[int]] = defaultdict(list)
    since: dict[tuple[str, str, str, tuple[str, ...]], list[int]] = defaultdict(list)
    for origin, at, exchange, logs, is_partial, is_in_gap, messages, since_ms in rows:
        first = names.get(origin, origin)
        having = [names.get(one, one) for one in logs or ()]
        places = (
            [f"packer of {first}"]
            if is_partial
            else waits_for(assumptions.mesh, exchange, first, names.get(at, at), having)
        )
        if is_in_gap and names.get(at, at) in having:
            places = [f"{place}, whose log has a gap" for place in places]
        key = (origin, at, exchange, tuple(places))
        found[key].append(messages)
        since[key].append(since_ms)
    return [
        {
            "origin": key[0],
            "destination": key[1],
            "exchange": key[2],
            "waits_for": list(key[3]),
            "messages": sum(counts),
            "since_ms": min(since[key]),
        }
        for key, counts in sorted(found.items())
    ]
