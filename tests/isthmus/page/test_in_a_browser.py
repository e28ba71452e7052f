"""The page in Chromium: each view, what changes under one's eyes, and each order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.isthmus.page.browser import chromium, tab
from tests.isthmus.page.page_world import page_world

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Any]:
    async with chromium() as started:
        yield started


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


async def test_a_page_without_its_server_names_its_figures_old(
    browser: Any, tmp_path: Path
) -> None:
    async with tab(browser, "http://127.0.0.1:1") as shown:
        async with page_world(tmp_path) as world:
            shown.url = world.url
            await shown.open("mesh")
        await shown.see("not connected", "#live")
        shown.asked.clear()
        shown.complaints.clear()
