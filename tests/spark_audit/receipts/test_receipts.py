"""Receipts of publishers and consumers: read in every form, witnesses past our own word."""

from __future__ import annotations

import csv
import gzip
import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from federation.mesh_file import load_mesh
from relay.batches.time_offsets import unpack_offsets
from spark_audit.generate.generator import generate_ledgers
from spark_audit.job import Audit
from spark_audit.ledger_search import LedgerSearch
from spark_audit.level import Level
from spark_audit.period import Period
from spark_audit.receipts.receipts import BadReceipts, read_receipts
from spark_audit.report.html import write_report
from spark_audit.report.report import AuditReport, AuditVerdict

pytestmark = pytest.mark.spark

_BEGIN_MS = Period.of_day(date(2026, 3, 1)).from_ms
HOUR = Period(_BEGIN_MS, _BEGIN_MS + 3_600_000)
SITES = {"paris": "c1", "tokyo": "c2"}


@dataclass(frozen=True, slots=True)
class Receipt:
    message_id: str
    site: str
    time: str
    role: str
    exchange: str | None = "orders"
    confirmed: bool | None = None
    queue: str | None = None
    redelivered: bool | None = None


def line(one: Receipt) -> str:
    return json.dumps({key: value for key, value in asdict(one).items() if value is not None})


def write_lines(folder: Path, receipts: list[Receipt], name: str = "r.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(line(one) + "\n" for one in receipts))
    return folder


def at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


# -- reading ---------------------------------------------------------------------------------------

ONE = Receipt("m1", "paris", "2026-03-01T08:00:00.123Z", "published", confirmed=True)
OTHER = Receipt("m1", "tokyo", "2026-03-01T08:00:01+00:00", "consumed", None, None, "work", True)
READ = [
    ("m1", "c1", _BEGIN_MS + 8 * 3_600_000 + 123, True, "orders", None),
    ("m1", "c2", _BEGIN_MS + 8 * 3_600_000 + 1000, False, None, "work"),
]


def as_jsonl(folder: Path) -> None:
    write_lines(folder, [ONE, OTHER])


def as_packed_json_lines(folder: Path) -> None:
    (folder / "r.ndjson.gz").write_bytes(gzip.compress(f"{line(ONE)}\n\n{line(OTHER)}\n".encode()))


def as_csv(folder: Path) -> None:
    """Two files with their columns in different orders, one of them without some."""
    for name, one, keys in (
        ("a.csv", ONE, ["site", "message_id", "time", "role", "exchange", "shift"]),
        ("b.csv", OTHER, ["message_id", "queue", "site", "time", "role", "redelivered"]),
    ):
        with (folder / name).open("w", newline="") as out:
            writer = csv.DictWriter(out, keys, extrasaction="ignore")
            writer.writeheader()
            writer.writerow(asdict(one))


def as_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{**asdict(one), "time": datetime.fromisoformat(one.time)} for one in (ONE, OTHER)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "r.parquet")


@pytest.mark.parametrize("write", [as_jsonl, as_packed_json_lines, as_csv, as_parquet])
def test_every_form_says_the_same(
    tmp_path: Path, spark: Any, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    (tmp_path / "_SUCCESS").touch()
    rows = read_receipts(spark, str(tmp_path), SITES).orderBy("at").collect()
    keys = ("message_id", "at", "at_ms", "is_published", "exchange", "queue")
    assert [tuple(row[key] for key in keys) for row in rows] == READ
    assert rows[0]["is_confirmed"] is True
    assert [row["is_redelivered"] for row in rows] == [False, True]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ('{"message_id": "m1", "site": ', "it is not a JSON object"),
        ('["m1", "paris"]', "it is not a JSON object"),
        (line(replace(ONE, message_id="")), "it has no message_id"),
        (line(replace(ONE, site="pariss")), "its site is pariss, which the mesh does not have"),
        (line(replace(ONE, time="yesterday")), "its time is yesterday, not like 2026-11-22T08:00"),
        (line(replace(ONE, role="sent")), "its role is sent, not published or consumed"),
        ('{"message_id": "m1", "site": "paris", "role": "consumed"}', "its time is not said"),
        (line(ONE).replace("true", '"perhaps"'), "confirmed is perhaps, not true or false"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, spark: Any, bad: str, said: str) -> None:
    write_lines(tmp_path / "in", [ONE], "a.jsonl")
    (tmp_path / "in" / "b.jsonl").write_text(f"{line(ONE)}\n\n{line(OTHER)}\n{bad}\n{line(ONE)}\n")
    with pytest.raises(BadReceipts) as caught:
        read_receipts(spark, str(tmp_path / "in"), SITES)
    assert str(caught.value).startswith(f"{tmp_path}/in/b.jsonl, line 4: {said}")


def test_a_csv_line_with_too_few_columns_is_named(tmp_path: Path, spark: Any) -> None:
    file = tmp_path / "r.csv"
    file.write_text(f"message_id,site,time,role\nm1,paris,{ONE.time},published\nm2,paris\n")
    with pytest.raises(BadReceipts, match=r"r\.csv, line 3: "):
        read_receipts(spark, str(file), SITES)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.csv", "message_id,when\nm1,now\n", "line 1: its heading lacks site, time, role"),
        ("r.txt", "m1\n", "its name ends in none of"),
        ("r.parquet", "PAR1 not at all", "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_named(
    tmp_path: Path, spark: Any, name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadReceipts) as caught:
        read_receipts(spark, str(tmp_path), SITES)
    assert name in str(caught.value)
    assert said in str(caught.value)


def test_no_receipts_at_all_is_an_error(tmp_path: Path, spark: Any) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadReceipts, match="there are no receipts"):
            read_receipts(spark, str(path), SITES)


# -- hearing ---------------------------------------------------------------------------------------


def receipts_of(folder: Path) -> tuple[list[Receipt], list[Receipt]]:
    """Published and consumed, as applications at all sites of made ledgers would have them."""
    search = LedgerSearch.open(str(folder / "sites"))
    published, consumed = [], []
    for row in search.matching(search.of_stage("packed"), None, [("event", "=", "batch")]):
        times = unpack_offsets(row["published"], round(row["first_published"].timestamp() * 1000))
        for number, time_ms in enumerate(times):
            identity = row["identities"][16 * number : 16 * number + 16]
            message_id = str(uuid.UUID(bytes=identity))
            published.append(
                Receipt(message_id, row["site"], at(time_ms), "published", confirmed=True)
            )
            consumed += [
                Receipt(message_id, site, at(time_ms + 900), "consumed")
                for site in search.sites
                if site != row["site"]
            ]
    return published, consumed


def as_urn(one: Receipt) -> str:
    return uuid.UUID(one.message_id).urn


SOME = uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
NO_UUIDS = (
    *(SOME.hex, "urn:uuid:", f"urn:uuid:{SOME.hex}", f"{SOME.urn} ", f"{SOME.urn}\n", f"{SOME}\n"),
    *(SOME.urn[:-1], f"{SOME.urn[:-1]}g", f"{SOME.urn[:-1]}é", f"urn:guid:{SOME}", f"uuid:{SOME}"),
    *(f"urn:uuid:{SOME.urn}", f"ſrn:uuid:{SOME}", f"ſrn:uuid{SOME}"),
)


def audited(
    spark: Any, folder: Path, receipts: list[Receipt], level: Level = Level.EXACT
) -> AuditReport:
    write_lines(folder / "receipts", receipts)
    return Audit(
        spark,
        load_mesh(folder / "mesh.yaml"),
        str(folder / "sites"),
        HOUR,
        receipts=str(folder / "receipts"),
        level=level,
    ).run()


def found_in(report: AuditReport) -> set[tuple[str, str, str | None, str | None]]:
    return {
        (
            row["kind"],
            str(uuid.UUID(row["identity"])),
            row["origin"] and report.name(row["origin"]),
            row["destination"] and report.name(row["destination"]),
        )
        for row in report.table.collect()
    }


@pytest.mark.parametrize(
    "level", [Level.EXACT, pytest.param(Level.FINGERPRINT, marks=pytest.mark.long)]
)
def test_receipts_that_say_the_same_as_the_ledgers_change_nothing(
    tmp_path: Path, spark: Any, level: Level
) -> None:
    generate_ledgers(tmp_path / "made", 3, 1500, 2, HOUR, [])
    published, consumed = receipts_of(tmp_path / "made")
    # A publisher notes what it sends before it is confirmed; a consumer is given something twice.
    published.insert(0, replace(published[0], confirmed=False))
    consumed.append(replace(consumed[0], redelivered=True))
    # Of another queue at the same site, and what came over midnight.
    consumed.append(replace(consumed[5], queue="other"))
    # A UUID in another form is the same; what only looks like one is in no ledger, and not missed.
    consumed[::2] = [replace(one, message_id=as_urn(one)) for one in consumed[::2]]
    published[::3] = [replace(one, message_id=one.message_id.upper()) for one in published[::3]]
    odd = [Receipt(text, "site1", at(_BEGIN_MS + 1000), "published") for text in NO_UUIDS]
    report = audited(spark, tmp_path / "made", [*published, *consumed, *odd], level)
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)
    assert report.receipts == {
        "published": 1500 + len(NO_UUIDS),
        "consumed": 3000,
        "compared": 1500,
    }


def test_what_only_receipts_tell_is_found_and_nothing_else(tmp_path: Path, spark: Any) -> None:
    (lost,) = generate_ledgers(tmp_path / "made", 3, 1500, 2, HOUR, ["lost"]).findings
    published, consumed = receipts_of(tmp_path / "made")
    lost_id = str(uuid.UUID(lost.identity))
    consumed = [
        one for one in consumed if (one.message_id, one.site) != (lost_id, lost.destination)
    ]
    others = [one for one in consumed if one.message_id != lost_id]
    gone, twice, unsaid, unconfirmed = others[0], others[400], others[800], others[1200]
    assert len({one.message_id for one in (gone, twice, unsaid, unconfirmed)}) == 4
    origin = {one.message_id: one.site for one in published}
    consumed.remove(gone)
    consumed.append(replace(twice, time=at(_BEGIN_MS + 3_500_000), message_id=as_urn(twice)))
    published = [one for one in published if one.message_id != unsaid.message_id]
    # Nobody promised this one, so that nobody misses it.
    published = [
        replace(one, confirmed=False) if one.message_id == unconfirmed.message_id else one
        for one in published
    ]
    consumed.remove(unconfirmed)
    never = Receipt(str(uuid.uuid4()), "site1", at(_BEGIN_MS + 1000), "published")
    never_said = replace(never, message_id=as_urn(never).upper())
    nobody = Receipt(str(uuid.uuid4()), "site2", at(_BEGIN_MS + 1000), "consumed")
    report = audited(spark, tmp_path / "made", [*published, *consumed, never_said, nobody])
    unsaid_at = {one.site for one in consumed if one.message_id == unsaid.message_id}
    assert found_in(report) == {
        ("lost", lost_id, lost.origin, lost.destination),
        ("not received", lost_id, lost.origin, lost.destination),
        ("not received", gone.message_id, origin[gone.message_id], gone.site),
        ("not received", never.message_id, "site1", None),
        ("consumed twice", twice.message_id, origin[twice.message_id], twice.site),
        ("consumed unpublished", nobody.message_id, None, "site2"),
        *(
            ("consumed unpublished", unsaid.message_id, origin[unsaid.message_id], site)
            for site in unsaid_at
        ),
    }
    why = {(row["identity"], row["kind"]): row["why"] for row in report.table.collect()}
    assert why[lost.identity, "not received"].endswith("the ledger says lost")
    hidden = uuid.UUID(gone.message_id).hex
    assert why[hidden, "not received"].endswith("the ledger says delivered")
    assert "never taken off its exchange" in why[uuid.UUID(never.message_id).hex, "not received"]
    write_report(report, tmp_path / "out")
    assert "consumed unpublished" in (tmp_path / "out" / "report.html").read_text()


def test_a_site_whose_consumers_say_nothing_proves_nothing(tmp_path: Path, spark: Any) -> None:
    generate_ledgers(tmp_path / "made", 3, 900, 2, HOUR, [])
    published, consumed = receipts_of(tmp_path / "made")
    silent = [one for one in consumed if one.site != "site3"]
    report = audited(spark, tmp_path / "made", published + silent)
    assert report.verdict is AuditVerdict.NOT_PROVEN
    (why,) = report.why_not_proven
    assert why.startswith("site3 receipts: no consumer's receipts of exchange orders: whether 600 ")


def test_a_witness_says_nothing_of_what_came_before_it_began_or_after_it_ended(
    tmp_path: Path, spark: Any
) -> None:
    generate_ledgers(tmp_path / "made", 3, 4_000, 2, HOUR, [])
    published, consumed = receipts_of(tmp_path / "made")
    noon = at(_BEGIN_MS + 1_800_000)
    # Of site3's consumers half an hour, of site2's publishers the other half.
    heard = [one for one in consumed if one.site != "site3" or one.time < noon]
    of_site1 = {one.message_id for one in published if one.site == "site1"}
    there = sorted((one for one in heard if one.site == "site3"), key=lambda one: one.time)
    gone = next(one for one in there[len(there) // 2 :] if one.message_id in of_site1)
    heard.remove(gone)
    told = [one for one in published if one.site != "site2" or one.time > noon]
    # Nothing was published behind it yet: it may still wait in egress.
    waits = Receipt(str(uuid.uuid4()), "site1", at(_BEGIN_MS + 3_599_000), "published")
    report = audited(spark, tmp_path / "made", [*told, waits, *heard])
    assert [kind for kind, *_ in found_in(report)] == ["not received"]
    assert {one[1] for one in found_in(report)} == {gone.message_id}
    why = sorted(report.why_not_proven)
    assert [one.partition(":")[0] for one in why] == [
        "site1 receipts",
        "site2 receipts",
        "site3 receipts",
    ]
    assert "1 messages published to exchange orders are in no ledger" in why[0]
    assert "the publisher's receipts of exchange orders begin later or end before" in why[1]
    assert "the consumer's receipts of exchange orders begin later or end before" in why[2]
    late = [one for one in published if one.site != "site3" and one.time >= noon]
    assert len(late) - 50 < int(why[2].split("whether ")[1].split()[0]) < len(late) + 50
