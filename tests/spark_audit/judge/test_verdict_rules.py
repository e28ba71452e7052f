"""Each verdict's rule over literal rows, beside the order in which the rules are asked."""

from __future__ import annotations

from typing import Any

import pytest

from spark_audit.judge import verdict_rules as rules

pytestmark = pytest.mark.spark

COUNTS = (
    *("sent", "live", "aside", "passed", "partial", "refused", "disputed", "plain", "flagged"),
    *("conflicts", "duplicates", "repairs_refused", "expired", "dead", "quarantined", "unrouted"),
    *("own", "repaired", "from_nowhere", "arrived_in_all", "known_in_all"),
)
FLAGS = ("incomplete_at", "renewed_at", "begun_at", "departed_at", "incomplete_from", "is_in_gap")
TIMES = ("published_ms", "delivered_ms", "deadline_ms")
SENT = {"sent": 1, "live": 1}


def answers(spark: Any, column: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """Evaluate a column on rows with these values; other counts are 0, other flags false."""
    given = [
        {
            "nth": nth,
            "at": "here",
            "origin": "there",
            "verdict": None,
            **dict.fromkeys(COUNTS, 0),
            **dict.fromkeys(FLAGS, False),
            **dict.fromkeys(TIMES),
            **row,
        }
        for nth, row in enumerate(rows)
    ]
    kinds = [
        *(f"{name} INT" for name in ("nth", *COUNTS)),
        *(f"{name} STRING" for name in ("at", "origin", "verdict")),
        *(f"{name} BOOLEAN" for name in FLAGS),
        *(f"{name} BIGINT" for name in TIMES),
    ]
    names = [kind.split()[0] for kind in kinds]
    table = spark.createDataFrame([tuple(row[n] for n in names) for row in given], ", ".join(kinds))
    return [row[0] for row in table.sort("nth").select(column.alias("answer")).collect()]


def arrived(took_ms: int, deadline_ms: int | None, **others: int) -> dict[str, Any]:
    times = {"published_ms": 1000, "delivered_ms": 1000 + took_ms, "deadline_ms": deadline_ms}
    return {"plain": 1, **times, **others}


def test_late_is_over_the_deadline_and_by_no_repair(spark: Any) -> None:
    rows = [arrived(501, 500), arrived(500, 500), arrived(501, 500, repaired=1), {}]
    assert answers(spark, rules.late(), rows) == [True, False, False, False]
    assert answers(spark, rules.late(), [arrived(501, None)]) == [None]


def test_delivered_is_plain_flagged_or_in_conflict(spark: Any) -> None:
    rows = [{"plain": 1}, {"flagged": 1}, {"conflicts": 1}, {"duplicates": 1}]
    assert answers(spark, rules.delivered(), rows) == [True, True, True, False]


@pytest.mark.parametrize(
    ("rule", "column"),
    [
        (rules.unrouted, "unrouted"),
        (rules.dead_lettered, "dead"),
        (rules.quarantined, "quarantined"),
        (rules.expired, "expired"),
        (rules.is_sent, "sent"),
    ],
)
def test_an_outcome_of_its_own_decides_by_its_count(spark: Any, rule: Any, column: str) -> None:
    assert answers(spark, rule(), [{column: 0}, {column: 1}, {column: 2}]) == [False, True, True]


def test_suppressed_needs_the_message_from_another_origin_or_a_barrier_that_knew_it(
    spark: Any,
) -> None:
    rows = [
        {"arrived_in_all": 1},
        {"duplicates": 1, "known_in_all": 1},
        {"known_in_all": 1},
        {"duplicates": 1, "repairs_refused": 1, "known_in_all": 1},
        {"duplicates": 1},
    ]
    assert answers(spark, rules.suppressed(), rows) == [True, True, False, False, False]


def test_set_aside_and_void_have_no_live_copy(spark: Any) -> None:
    rows = [{"aside": 1}, {}, {"aside": 1, "live": 1}, {"aside": 1, "duplicates": 1}]
    assert answers(spark, rules.set_aside(), rows) == [True, False, False, False]
    assert answers(spark, rules.void(), rows) == [True, True, False, False]


def test_unproven_is_a_duplicate_of_unknown_rows(spark: Any) -> None:
    rows: list[dict[str, Any]] = [{"duplicates": 1, name: True} for name in FLAGS]
    expected = [True, True, True, False, False, False]
    assert answers(spark, rules.unproven(), rows) == expected


def test_unproven_is_a_message_whose_rows_may_be_missing(spark: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"incomplete_at": True},
        {"renewed_at": True, "begun_at": True},
        {"disputed": 1},
        {"partial": 1},
        {"partial": 1, "incomplete_from": True},
        {"incomplete_from": True},
    ]
    assert answers(spark, rules.unproven(), rows) == [True, False, True, False, True, False]


def test_lost_is_passed_refused_or_suppressed(spark: Any) -> None:
    rows = [
        {"passed": 1},
        {"refused": 1},
        {"duplicates": 1},
        {"duplicates": 1, "repairs_refused": 1},
        {},
    ]
    assert answers(spark, rules.lost(), rows) == [True, True, True, False, False]


def test_what_only_the_site_decides(spark: Any) -> None:
    rows: list[dict[str, Any]] = [{"renewed_at": True}, {"departed_at": True}]
    assert answers(spark, rules.unproven_after_renewal(), rows) == [True, False]
    assert answers(spark, rules.departed(), rows) == [False, True]
    assert answers(spark, rules.pending(), rows) == [True, True]


def test_unordered_deliveries_are_unexpected_unless_their_origin_lacks_rows(spark: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"from_nowhere": 1, "incomplete_from": True},
        {"from_nowhere": 1},
        {"incomplete_from": True},
    ]
    assert answers(spark, rules.unproven_origin(), rows) == [True, False, False]
    assert answers(spark, rules.unexpected(), rows) == [True, True, True]


PRECEDENCE: list[tuple[dict[str, Any], str | None]] = [
    ({**SENT, **arrived(9, 8), "unrouted": 1, "passed": 1}, "late"),
    ({**SENT, **arrived(7, 8), "duplicates": 1}, "delivered"),
    ({**SENT, "unrouted": 1, "dead": 1}, "unrouted"),
    ({**SENT, "dead": 1, "quarantined": 1}, "dead-lettered"),
    ({**SENT, "quarantined": 1, "expired": 1}, "quarantined"),
    ({**SENT, "expired": 1, "duplicates": 1, "arrived_in_all": 1}, "expired"),
    ({**SENT, "duplicates": 1, "known_in_all": 1, "incomplete_at": True}, "suppressed"),
    ({**SENT, "arrived_in_all": 1, "live": 0, "aside": 1}, "suppressed"),
    ({**SENT, "duplicates": 1, "begun_at": True, "passed": 1}, "unproven"),
    ({**SENT, "duplicates": 1, "live": 0}, "lost"),
    ({**SENT, "live": 0, "aside": 1, "incomplete_at": True}, "quarantined"),
    ({**SENT, "live": 0, "incomplete_at": True}, "void"),
    ({**SENT, "incomplete_at": True, "passed": 1}, "unproven"),
    ({**SENT, "disputed": 1, "refused": 1}, "unproven"),
    ({**SENT, "partial": 1, "incomplete_from": True, "passed": 1}, "unproven"),
    ({**SENT, "passed": 1, "renewed_at": True}, "lost"),
    ({**SENT, "renewed_at": True, "departed_at": True}, "unproven"),
    ({**SENT, "departed_at": True}, "departed"),
    ({**SENT, "duplicates": 1, "repairs_refused": 1}, "pending"),
    ({**SENT}, "pending"),
    ({"plain": 1, "from_nowhere": 1, "incomplete_from": True}, "unproven"),
    ({"plain": 1, "incomplete_from": True}, "unexpected"),
    ({"duplicates": 1, "incomplete_at": True}, None),
]


def test_the_first_rule_that_holds_decides(spark: Any) -> None:
    found = answers(spark, rules.verdict(), [row for row, _ in PRECEDENCE])
    assert found == [verdict for _, verdict in PRECEDENCE]


WHY: list[tuple[dict[str, Any], str | None]] = [
    ({"verdict": "lost", "duplicates": 1, "is_in_gap": True}, "suppressed as a duplicate, and"),
    ({"verdict": "lost", "is_in_gap": True, "refused": 1}, "the site had not delivered it"),
    ({"verdict": "lost", "refused": 1}, "the site took its batch for void, and most"),
    ({"verdict": "lost"}, "the site is done with later batches"),
    ({"verdict": "unproven", "is_in_gap": True, "disputed": 1}, "the site had not delivered it"),
    ({"verdict": "unproven", "disputed": 1, "duplicates": 1}, "the site took its batch for void,"),
    ({"verdict": "unproven", "duplicates": 1, "sent": 1}, "suppressed as a duplicate of what"),
    ({"verdict": "unproven", "partial": 1, "incomplete_from": True}, "packed in part"),
    ({"verdict": "unproven", "partial": 1}, "delivered, and rows of its origin"),
    ({"verdict": "unproven", "sent": 1}, "no row of it"),
    ({"verdict": "unexpected", "at": "there", "from_nowhere": 1}, "delivered back at its origin"),
    ({"verdict": "unexpected", "from_nowhere": 1}, "delivered, and its origin never packed it"),
    ({"verdict": "unexpected"}, "delivered at a site that was not to have it"),
    ({"verdict": "late", **arrived(7999, 1)}, "took 7 s"),
    ({"verdict": "pending"}, None),
]


def test_each_verdict_that_needs_one_has_a_reason(spark: Any) -> None:
    found = answers(spark, rules.why(), [row for row, _ in WHY])
    for reason, (row, begin) in zip(found, WHY, strict=True):
        assert (reason is None) is (begin is None), row
        assert reason is None or reason.startswith(begin), (row, reason)


def test_leaked_counts_all_but_the_first_unmarked_delivery(spark: Any) -> None:
    rows = [
        (0, 3, (10, 1, False), (10, 1, False)),
        (1, 3, (20, 1, False), (10, 1, False)),
        (2, 1, (10, 1, True), (10, 1, True)),
        (3, 1, (10, 7, False), (10, 7, False)),
        (4, 0, None, None),
        (5, 1, (10, 1, False), (10, 1, False)),
    ]
    first = "STRUCT<delivered_ms: BIGINT, outcome: INT, is_flagged: BOOLEAN>"
    schema = f"nth INT, plain INT, first {first}, first_in_all {first}"
    table = spark.createDataFrame(rows, schema).sort("nth")
    found = [row[0] for row in table.select(rules.leaked()).collect()]
    assert found == [2, 3, 1, 1, 0, 0]
