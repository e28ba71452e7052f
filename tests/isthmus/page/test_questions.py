"""Messages put aside, traces, audits and outages, as the page gets them from commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Group

from isthmus.display import fill, table_of
from isthmus.lost_messages import AFTER
from isthmus.page.questions import (
    SHOWN_AUDITS,
    SHOWN_BYTES,
    SHOWN_MESSAGES,
    audits,
    body_shown,
    tables_json,
)
from tests.isthmus.page.page_world import page_world, put_aside
from tests.isthmus.test_lost_messages import write


@pytest.mark.parametrize(
    ("body", "text", "is_text"),
    [
        (b"", "", True),
        ("grüß".encode(), "grüß", True),
        (b"\x00\xff\xfe", "\x00\\xff\\xfe", False),
        ("grüß".encode()[:-1], "grü\\xc3", False),
        (b"<script>alert(1)</script>", "<script>alert(1)</script>", True),
    ],
)
def test_a_body_is_shown_as_text_or_escaped(body: bytes, text: str, is_text: bool) -> None:
    assert body_shown(body) == {"text": text, "is_text": is_text, "is_cut": False}


def test_a_large_body_is_cut_without_spoiling_its_last_character() -> None:
    found = body_shown(b"x" * (SHOWN_BYTES - 1) + "é".encode() * 9)
    assert (found["is_text"], found["is_cut"]) == (True, True)
    assert found["text"] == "x" * (SHOWN_BYTES - 1)


def test_tables_of_a_terminal_are_tables_of_the_page() -> None:
    table = table_of("links [x]", "link", ">rate")
    rows = [{"link": f"a-b{number}[bold]", "rate": number} for number in range(3)]
    shown = fill(table, rows, lambda row: [row["link"], str(row["rate"])], 2)
    assert list(tables_json(Group("one\\[2]", "", shown))) == [
        {"text": "one[2]"},
        {
            "title": "links [x]",
            "headings": [
                {"text": "link", "is_figure": False},
                {"text": "rate", "is_figure": True},
            ],
            "rows": [["a-b0[bold]", "0"], ["a-b1[bold]", "1"]],
        },
        {"text": "and 1 more rows: --all"},
    ]


def test_audits_are_listed_and_damaged_ones_named(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    good: dict[str, Any] = {"sentence": "2 are lost", "shown": [{"kind": "lost", "why": "gone"}]}
    write(folder / "from=2026-11-20", why_not_proven=["rows lack"], **good)
    write(folder / "from=2026-11-21", why_not_proven=[], **{**good, "findings": {}})
    write(folder / "from=2026-11-22", mesh="other")
    (folder / "from=2026-11-23").mkdir()
    (folder / "from=2026-11-23" / "report.json").write_text('{"mesh": "ac')
    (folder / "from=..").mkdir()
    damaged, other, fine, lossy = audits(tmp_path, "acme")
    assert "cannot be read" in damaged["problem"]
    assert other["problem"] == "it is an audit of mesh other"
    assert (fine["name"], fine["can_repair"]) == ("2026-11-21", False)
    assert (lossy["can_repair"], lossy["findings"]) == (True, {"lost": 2, "looped": 1})
    assert lossy["shown"][0]["why"] == "gone"
    assert lossy["after_repair"] is None
    write(folder / "from=2026-11-20" / AFTER, **{**good, "sentence": "all came", "findings": {}})
    repaired = audits(tmp_path, "acme")[-1]
    assert repaired["after_repair"]["sentence"] == "all came"
    assert (repaired["sentence"], repaired["can_repair"]) == ("2 are lost", False)
    os.utime(folder / "from=2026-11-20" / "report.json", ns=(2**62, 2**62))  # made again since
    assert audits(tmp_path, "acme")[-1]["can_repair"]
    (folder / "from=2026-11-20" / AFTER / "report.json").write_text("{")
    assert audits(tmp_path, "acme")[-1]["can_repair"]
    for day in range(SHOWN_AUDITS):
        (folder / f"from=2027-01-{day + 1:02}").mkdir()
    assert len(audits(tmp_path, "acme")) == SHOWN_AUDITS


async def test_of_ten_thousand_messages_the_first_are_listed(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        world.nodes.aside["tokyo", "quarantine"] = [put_aside(f"{n:x}") for n in range(10_000)]
        found = await world.json("/api/aside/tokyo/quarantine")
        assert (found["total"], len(found["messages"])) == (10_000, SHOWN_MESSAGES)


async def test_the_begin_of_a_body_of_sixteen_mib_is_shown(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        world.nodes.aside["tokyo", "quarantine"] = [put_aside("1f", b"\x80" * (16 << 20))]
        found = await world.json("/api/aside/tokyo/quarantine/1f")
        assert (found["bytes"], found["is_cut"], found["is_text"]) == (16 << 20, True, False)
        assert len(found["text"]) == 4 * SHOWN_BYTES
        assert "properties_base64" not in found


async def test_questions_to_nobody_are_answered_with_what_to_do(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        (world.state / "sites" / "tokyo" / "node.json").write_text("{")
        status, text = await world.get("/api/aside/tokyo/quarantine", headers=world.bearer)
        assert (status, "run this where it runs" in text) == (503, True)
        for path in ("/api/aside/atlantis/quarantine", "/api/aside/tokyo/egress"):
            assert (await world.get(path, headers=world.bearer))[0] == 404


async def test_an_outage_of_a_link_that_is_none_is_a_wrong_question(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        question = {"fail": ["paris-lima"], "for": "1h", "rate": "5"}
        status, text = await world.post("/api/outage", question, headers=world.bearer)
        assert (status, "there is no site or link 'paris-lima'" in text) == (400, True)


@pytest.mark.parametrize(
    "question",
    [{}, {"fail": []}, {"fail": "x", "for": "1h", "rate": "5"}, {"fail": ["\0"], "for": "1h"}],
)
async def test_an_outage_that_says_too_little_is_refused(tmp_path: Path, question: Any) -> None:
    async with page_world(tmp_path) as world:
        status, text = await world.post("/api/outage", question, headers=world.bearer)
        assert (status, text.startswith("say fail")) == (400, True)
