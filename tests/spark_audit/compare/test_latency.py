"""How long messages took, against the same worked out message for message."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from relay.batches.time_offsets import unpack_offsets
from spark_audit.compare.latency import Latency, Way
from spark_audit.generate.generator import generate_ledgers
from spark_audit.ledger_search import LedgerSearch
from spark_audit.period import Period
from spark_audit.report.html import write_report
from tests.spark_audit.conftest import AuditOf

pytestmark = pytest.mark.spark

_BEGIN_MS = Period.of_day(date(2026, 3, 1)).from_ms
HOUR = Period(_BEGIN_MS, _BEGIN_MS + 3_600_000)
Times = dict[tuple[str, str], list[int]]


def ms(time: Any) -> int:
    return round(time.timestamp() * 1000)


def rows_of(search: LedgerSearch, stage: str) -> list[dict[str, Any]]:
    conditions = [("event", "=", "batch"), ("stage", "=", stage)]
    return list(search.matching(search.of_stage(stage), None, conditions))


def by_link(search: LedgerSearch) -> Times:
    """All sites are linked with each other: who sends is the origin."""
    packed = {
        (row["origin"], row["incarnation"], row["sequence"]): row for row in packed_of(search)
    }
    found: Times = defaultdict(list)
    for row in rows_of(search, "linked_in"):
        begin = packed[row["origin"], row["incarnation"], row["sequence"]]["recorded"]
        took = ms(row["recorded"]) - ms(begin)
        found[row["neighbour"], row["site"]] += [took] * row["count"]
    return found


def packed_of(search: LedgerSearch) -> list[dict[str, Any]]:
    return rows_of(search, "packed")


def by_pair(search: LedgerSearch) -> Times:
    found: Times = defaultdict(list)
    for row in rows_of(search, "delivered"):
        if row["site"] != row["origin"]:
            published = unpack_offsets(row["published"], ms(row["first_published"]))
            delivered = unpack_offsets(row["delivered"], ms(row["recorded"]))
            found[row["origin"], row["site"]] += [
                b - a for a, b in zip(published, delivered, strict=True)
            ]
    return found


def at(times: list[int], part: float) -> int:
    return sorted(times)[min(len(times) - 1, math.ceil(part * len(times)) - 1)]


def test_it_is_what_the_rows_say_one_by_one(tmp_path: Path, audit_of: AuditOf) -> None:
    generate_ledgers(tmp_path / "made", 3, 6000, 4, HOUR, [])
    report = audit_of(tmp_path / "made", HOUR)
    search = LedgerSearch.open(str(tmp_path / "made" / "sites"))
    links = of_way(report.latencies, Way.LINK)
    told = by_link(search)
    assert links.keys() == told.keys()
    for pair, one in links.items():
        assert one.messages == len(told[pair])
        for said, part in ((one.p50_ms, 0.5), (one.p90_ms, 0.9), (one.most_ms, 1)):
            assert said == pytest.approx(at(told[pair], part), rel=0.1)
    pairs = of_way(report.latencies, Way.DELIVERY)
    told = by_pair(search)
    assert pairs.keys() == told.keys()
    for pair, one in pairs.items():
        assert one.messages == len(told[pair])
        assert one.most_ms == pytest.approx(at(told[pair], 1), rel=0.01)
        assert one.p50_ms == pytest.approx(at(told[pair], 0.5), rel=0.25)
    assert {one.source for one in report.latencies if one.way is Way.PACKING} == set(search.sites)
    assert {one.source for one in report.latencies if one.way is Way.SETTLING} == set(search.sites)
    write_report(report, tmp_path / "out")
    assert report.sentence in (tmp_path / "out" / "report.html").read_text()


def of_way(latencies: list[Latency], way: Way) -> dict[tuple[str, str], Latency]:
    return {(one.source, one.target): one for one in latencies if one.way is way}
