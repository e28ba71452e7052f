"""The page in Chromium: each view, what changes under one's eyes, and each order."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from isthmus.page.server import PageOptions
from spark_audit.generate.generator import generate_ledgers
from spark_audit.period import Period
from tests.certificates import Authority
from tests.isthmus.page.browser import tab
from tests.isthmus.page.page_world import page_world
from tests.isthmus.test_lost_messages import write

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_cut_link_shows_itself_in_graph_table_and_card(
    browser: Any, tmp_path: Path
) -> None:
    async with page_world(tmp_path) as world, tab(browser, world.url) as shown:
        await shown.open("links")
        await shown.see("running", "tbody tr")
        assert "down" not in await shown.text("tbody")
        world.nodes.links["paris-tokyo"].update(
            state="down", reason="nothing heard for 11 s", lag_seconds=42.0, lag_messages=1234
        )
        await shown.see("nothing heard for 11 s", "tbody tr:first-child")
        row = await shown.text("tbody tr:first-child")
        assert "paris → tokyo" in row
        assert {"42 s", "1,234", "down"} <= set(row.replace("\n", "\t").split("\t"))
        await shown.picture("links")
        await shown.page.get_by_role("link", name="paris → tokyo").click()
        await shown.see("Link paris → tokyo", "h2")
        await shown.see("window in use")
        await shown.picture("link")
        await shown.open("mesh")
        await shown.page.locator("#graph canvas").first.wait_for()
        await shown.picture("mesh")


async def test_a_site_has_its_card(browser: Any, tmp_path: Path) -> None:
    async with page_world(tmp_path) as world, tab(browser, world.url) as shown:
        world.nodes.sites["tokyo"].update(
            state="blocked", reason="memory alarm", delivered=123_456, duplicates=7
        )
        await shown.open("sites")
        await shown.see("memory alarm", "tbody tr:first-child")
        await shown.page.get_by_role("link", name="tokyo").click()
        await shown.see("123,456")
        text = await shown.text()
        assert "memory alarm" in text
        assert "sydney → tokyo" in text


@pytest.mark.parametrize("view", ["site/atlantis", "link/paris-atlantis", "site/%E0%A4%A"])
async def test_a_card_of_something_gone_names_what_is_gone(
    browser: Any, tmp_path: Path, view: str
) -> None:
    async with page_world(tmp_path) as world, tab(browser, world.url) as shown:
        await shown.open("mesh")
        await shown.open(view)
        await shown.see("There is no")


async def test_a_page_names_its_figures_old_until_its_server_is_back(
    browser: Any, tmp_path: Path
) -> None:
    async with tab(browser, "") as shown:
        async with page_world(tmp_path) as world:
            shown.url = world.url
            await shown.open("mesh")
            await shown.log_in(world.token)
            port = int(world.url.rpartition(":")[2])
        await shown.see("not connected: what is shown is old", "#live")
        (tmp_path / "again").mkdir()
        async with page_world(tmp_path / "again", options=PageOptions(port=port)):
            await shown.see("live, revision", "#live")
            # Sessions end with the server.
            await shown.see("Log in", "#person")


async def test_a_message_is_found_in_the_ledgers_and_its_way_drawn(
    browser: Any, tmp_path: Path
) -> None:
    hour = Period.of_day(date(2026, 3, 1))
    (lost,) = generate_ledgers(tmp_path / "made", 3, 300, 5, hour, ["lost"], at_rows=64).findings
    copytree(tmp_path / "made" / "sites", tmp_path / "state" / "sites")
    text = (tmp_path / "made" / "mesh.yaml").read_text()
    async with page_world(tmp_path, text) as world, tab(browser, world.url) as shown:
        await shown.open("search")
        await shown.page.get_by_label("Its message_id").fill(lost.identity)
        await shown.press("Search", within="main")
        await shown.see("This needs the page's token")
        await shown.log_in(world.token)
        await shown.page.get_by_label("Its message_id").fill(lost.identity)
        await shown.press("Search", within="main")
        await shown.see("What each stage did")
        way = await shown.page.text_content("svg.way")
        assert {lost.origin, lost.destination} <= set(re.findall(r"site\d", way))
        assert "missing" in way
        assert "came after" in way
        await shown.picture("search")
        await shown.page.get_by_label("Its message_id").fill("no such message")
        await shown.press("Search", within="main")
        await shown.see("No ledger has it.")


async def test_a_planned_outage_gives_its_tables(browser: Any, tmp_path: Path) -> None:
    async with page_world(tmp_path) as world, tab(browser, world.url) as shown:
        await shown.open("outage")
        await shown.log_in(world.token)
        await shown.page.get_by_label("Links or sites that are away").fill("paris-tokyo")
        await shown.page.get_by_label("Messages/s").fill("5")
        await shown.press("Compute")
        await shown.see("ENOUGH")
        assert "of its line" in await shown.text()
        await shown.picture("outage")
        await shown.page.get_by_label("Links or sites that are away").fill("paris-lima")
        await shown.press("Compute")
        await shown.see("there is no site or link 'paris-lima'")


async def test_audits_are_shown_with_their_findings(browser: Any, tmp_path: Path) -> None:
    async with page_world(tmp_path) as world, tab(browser, world.url) as shown:
        (world.state / "audit").mkdir()
        finding = {"kind": "lost", "identity": "00ff", "destination": "tokyo", "why": "not there"}
        report = {"sentence": "2 are lost", "shown": [finding], "why_not_proven": ["rows lack"]}
        write(world.state / "audit" / "from=2026-11-21", **report)
        (world.state / "audit" / "from=2026-11-22").mkdir()
        await shown.open("audits")
        await shown.see("This needs the page's token")
        await shown.log_in(world.token)
        await shown.see("2 lost, 1 looped")
        await shown.see("report.json cannot be read")
        await shown.page.get_by_text("The first findings (1)").click()
        await shown.see("not there")
        await shown.picture("audits")
        write(world.state / "audit" / "from=2026-11-23", **report | {"sentence": "4 are lost"})
        await shown.see("4 are lost")


async def test_the_last_hour_is_drawn(browser: Any, tmp_path: Path) -> None:
    async with page_world(tmp_path) as world, tab(browser, world.url) as shown:
        await shown.open("link/paris-tokyo")
        await shown.see("as this page has gathered it")
        await shown.page.locator(".uplot canvas").nth(3).wait_for()


async def test_elsewhere_a_person_logs_in_before_anything_is_shown(
    browser: Any, tmp_path: Path
) -> None:
    certificate, key = Authority("us").issues().write(tmp_path, "page")
    options = PageOptions("0.0.0.0", 0, str(certificate), str(key))
    async with page_world(tmp_path, options=options) as world:
        url = world.url.replace("0.0.0.0", "127.0.0.1")
        async with tab(browser, url, ignore_https_errors=True) as shown:
            await shown.page.goto(url)
            await shown.see("this page is only for people with the token")
            assert "paris" not in await shown.page.content()
            await shown.log_in(world.token)
            await shown.page.locator("#graph canvas").first.wait_for()
            await shown.press("Log out", within="header")
            await shown.see("this page is only for people with the token")
            assert "acme" not in await shown.page.content()
