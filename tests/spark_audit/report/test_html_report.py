"""The page that people look at in the morning: it opens offline, says all, and runs nothing."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from html.parser import HTMLParser
from typing import Any

import pytest

from spark_audit.compare.latency import Latency, Way
from spark_audit.judge.verdicts import FINDINGS
from spark_audit.ledgers.books import LedgerProblem
from spark_audit.level import Level
from spark_audit.period import Period
from spark_audit.report.advice import ADVICE, Commands
from spark_audit.report.html import duration, page
from spark_audit.report.report import AuditedAgain, AuditReport, EarlierDays, PairMinute

DAY = Period.of_day(date(2026, 3, 1))
HOSTILE = "<script src=//evil.example/x.js>alert('1')</script>&\"\u202egnp.\x00"
COMMANDS = Commands("mesh.yaml", ".isthmus/audit/date=2026-03-01")
_VOID = {"meta", "br", "link", "img", "input", "hr"}


def finding(kind: str, number: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "identity": f"{number:032x}",
        "origin": "c1",
        "destination": "c2",
        "exchange": "orders",
        "published": DAY.from_ms + number,
        "delivered": None,
        "why": f"because of {kind}",
        "batch": "c1/00/orders.0>*/4",
        "entry": number,
        **more,
    }


def report_of(**more: Any) -> AuditReport:
    usual: dict[str, Any] = {
        "mesh": "shop",
        "revision": "4ef1",
        "period": DAY,
        "ledger": "/var/lib/isthmus/sites",
        "names": {"c1": "paris", "c2": "tokyo", "c3": "lima"},
        "counts": [
            PairMinute("c1", "c2", "orders", DAY.from_ms, "delivered", 12_000),
            PairMinute("c1", "c3", "orders", DAY.from_ms + 3 * 3_600_000, "delivered", 11_000),
        ],
        "findings": {},
        "shown": [],
        "waiting": [],
        "problems": [],
        "table": None,
    }
    return AuditReport(**{**usual, **more})


class Page(HTMLParser):
    """Elements, attributes and text; raises where tags do not pair."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)


def page_of(report: AuditReport) -> Page:
    return Page(page(report, COMMANDS))


def test_the_verdict_stands_at_its_top() -> None:
    for report in (
        report_of(),
        report_of(findings={"lost": 3}, shown=[finding("lost")]),
        report_of(problems=[LedgerProblem("lima", "no ledger of this site for these dates")]),
    ):
        found = page_of(report)
        assert report.sentence in found.text
        assert found.text.index(report.sentence) < found.text.index("From site to site")


def test_it_fetches_and_runs_nothing() -> None:
    text = page(full(), COMMANDS)
    found = Page(text)
    assert not found.tags.keys() & {"script", "link", "img", "iframe", "object", "form", "base"}
    names = {name for name, _ in found.attributes}
    assert not names & {"src", "href", "action"}
    assert not [name for name in names if name.startswith("on")]
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "://" not in text


def test_every_kind_of_finding_is_listed_with_what_to_do() -> None:
    found = page_of(full())
    for kind, told in ADVICE.items():
        assert f"because of {kind}" in found.text
        assert squeezed(told.to_do) in squeezed(found.text)
    assert f"isthmus repair mesh.yaml --audit {COMMANDS.out}" in found.text
    assert f"isthmus trace mesh.yaml {1:032x}" in found.text
    assert set(FINDINGS) <= set(ADVICE)


def squeezed(text: str) -> str:
    return re.sub(r"[\s`]", "", text)


def full() -> AuditReport:
    return report_of(
        findings=dict.fromkeys(ADVICE, 1) | {"lost": 1500},
        shown=[finding(kind, 1) for kind in ADVICE]
        + [finding("lost", number) for number in range(2, 300)],
        waiting=[
            {
                "origin": "c1",
                "destination": "c2",
                "exchange": "orders",
                "waits_for": ["link rome-lima", "link paris-lima"],
                "messages": 4,
                "since_ms": DAY.from_ms,
            }
        ],
        problems=[
            LedgerProblem("lima", "cannot be read", "lima/date=2026-03-01/delivered-1.parquet")
        ],
        latencies=[
            Latency(Way.DELIVERY, "c1", "c2", 12_000, 85, 130, 2400, 65_000),
            Latency(Way.LINK, "paris", "tokyo", 12_000, 70, 90, 1900, 9000),
            Latency(Way.PACKING, "paris", "paris", 12_000, 3, 5, 9, 20),
        ],
    )


def test_it_names_what_is_not_proven() -> None:
    found = page_of(full())
    assert "lima/date=2026-03-01/delivered-1.parquet: cannot be read" in found.text
    assert "link rome-lima or link paris-lima" in found.text


def test_it_says_where_messages_wait() -> None:
    assert "link rome-lima or link paris-lima" in page_of(full()).text


def test_it_says_what_its_level_does_not_tell() -> None:
    found = page_of(report_of(level=Level.FINGERPRINT))
    for words in Level.FINGERPRINT.blind_spots:
        assert words in found.text
    assert "by fingerprints" not in page_of(report_of()).text


def test_receipts_are_counted() -> None:
    counts = {"published": 1200, "consumed": 2400, "compared": 1100}
    found = page_of(report_of(receipts=counts))
    assert "Of 1,200 messages that publishers have receipts of, 1,100 were found" in found.text


def test_what_was_not_shown_is_said() -> None:
    found = page_of(full())
    assert "1,201 more of this kind stand in the table only" in found.text


def test_it_tells_how_long_messages_took() -> None:
    found = page_of(full())
    for words in ("2.4 s", "1 min 5 s", "1.9 s", "9 ms", "paris → tokyo"):
        assert words in found.text


def test_that_some_minutes_stand_for_all_is_said() -> None:
    latencies = [Latency(Way.DELIVERY, "c1", "c2", 9, 800, 900, 960, 965)]
    assert "stands for all" not in page_of(report_of(latencies=latencies)).text
    sampled = report_of(latencies=latencies, timed_every=12)
    assert "one minute in 12 stands for all" in page_of(sampled).text
    assert sampled.as_json()["timed_every_minutes"] == 12


def test_what_came_before_it_was_sent_is_put_down_to_the_clocks() -> None:
    found = page_of(report_of(latencies=[Latency(Way.DELIVERY, "c1", "c2", 9, -800, -700, -60, 5)]))
    assert "their clocks differ" in found.text
    assert "−800 ms" in found.text
    assert "their clocks differ" not in page_of(full()).text


def test_hostile_names_are_only_text() -> None:
    report = report_of(
        mesh=HOSTILE,
        names={"c1": HOSTILE, "c2": "tokyo"},
        ledger=HOSTILE,
        findings={"lost": 1, HOSTILE: 1},
        shown=[
            finding("lost", identity=HOSTILE, exchange=HOSTILE, why=HOSTILE, batch=HOSTILE),
            finding(HOSTILE),
        ],
        problems=[LedgerProblem(HOSTILE, HOSTILE, HOSTILE)],
        latencies=[Latency(Way.LINK, HOSTILE, "tokyo", 1, 1, 1, 1, 1)],
        counts=[PairMinute("c1", "c2", HOSTILE, DAY.from_ms, HOSTILE, 1)],
    )
    text = page(report, Commands(HOSTILE, HOSTILE, HOSTILE))
    found = Page(text)
    assert "script" not in found.tags
    assert "<script" not in text
    assert "alert('1')" in found.text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "\\u202egnp." in text


def test_with_many_sites_pairs_with_something_to_say_stand_in_place_of_the_matrix() -> None:
    names = {f"c{number}": f"branch{number}" for number in range(100)}
    counts = [
        PairMinute("c1", cluster, "orders", DAY.from_ms, "delivered", 10) for cluster in names
    ]
    counts.append(PairMinute("c1", "c77", "orders", DAY.from_ms, "lost", 2))
    found = page_of(report_of(names=names, counts=counts))
    assert "branch1 → branch77" in found.text
    assert "branch1 → branch76" not in found.text


def test_hours_in_which_nothing_was_published_are_there_too() -> None:
    found = page_of(report_of())
    for hour in ("01 Mar 00:00", "01 Mar 01:00", "01 Mar 02:00", "01 Mar 03:00"):
        assert hour in found.text


def test_more_than_two_days_are_told_by_day() -> None:
    counts = [
        PairMinute("c1", "c2", "orders", DAY.from_ms + day * 86_400_000, "delivered", 5)
        for day in (0, 3)
    ]
    found = page_of(report_of(counts=counts))
    for day in ("01 Mar 2026", "02 Mar 2026", "04 Mar 2026"):
        assert day in found.text


def test_a_period_without_messages_has_a_page() -> None:
    assert "nothing was published" in page_of(report_of(counts=[])).text


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        *(
            (0, "0 ms"),
            (-310_000, "−5 min 10 s"),
            (999, "999 ms"),
            (1500, "1.5 s"),
            (59_990, "60 s"),
        ),
        *((310_000, "5 min 10 s"), (25_320_000, "7 h 2 min")),
    ],
)
def test_times_are_said_in_a_fitting_unit(ms: int, said: str) -> None:
    assert duration(ms) == said


def test_what_earlier_days_left_open_is_told_and_counts() -> None:
    carried = EarlierDays(
        "2026-02-28",
        {"2026-02-28": Counter(delivered=7, lost=2, pending=1)},
        {"lost": 2},
        reasons=["2026-02-27 was never audited: `isthmus audit FILE --date 2026-02-27`"],
        again=[AuditedAgain("2026-02-26", "proven", "PROVEN: all of it", is_worse=False)],
    )
    report = report_of(carried=carried, findings={"lost": 2}, shown=[finding("lost")])
    text = " ".join(Page(page(report, COMMANDS)).texts)
    assert "Carried over from earlier days" in text
    assert "2026-02-26 was audited again" in text
    assert "2026-02-27 was never audited" in text
    assert report.verdict.exit_status == 1
    assert "2 of earlier days" in report.sentence
    assert report.as_json()["carried"]["days"] == {
        "2026-02-28": {"delivered": 7, "lost": 2, "pending": 1}
    }


def test_what_is_open_since_earlier_days_proves_nothing() -> None:
    pending = EarlierDays("2026-02-28", {"2026-02-28": Counter(delivered=7, pending=1)})
    assert report_of(carried=pending).verdict.exit_status == 2
    settled = EarlierDays("2026-02-28", {"2026-02-28": Counter(delivered=8)})
    assert report_of(carried=settled).verdict.exit_status == 0
    worse = EarlierDays(
        "2026-02-28", again=[AuditedAgain("2026-02-28", "findings", "", is_worse=True)]
    )
    assert report_of(carried=worse).verdict.exit_status == 1
    assert "2026-02-28, audited again" in report_of(carried=worse).sentence
