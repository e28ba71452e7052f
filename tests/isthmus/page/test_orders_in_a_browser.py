"""Orders in Chromium: each asks before it is given, does what it names, and stands in the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from relay.ledger.rows import Stage
from relay.log.open_gap import OpenGap
from relay.operator.gaps import SiteGaps
from relay.operator.holds import Holds, read_holds
from tests.isthmus.page.browser import Tab, tab
from tests.isthmus.page.page_world import PageWorld, page_world, put_aside
from tests.isthmus.test_lost_messages import write

pytestmark = pytest.mark.asyncio(loop_scope="module")

GAP = OpenGap(Stage.LINKED_OUT, "x", 4, 9, 1000, link="paris-tokyo", neighbour="tokyo")


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path: Path) -> AsyncIterator[PageWorld]:
    async with page_world(tmp_path) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def shown(browser: Any, world: PageWorld) -> AsyncIterator[Tab]:
    """A tab of a person who has logged in."""
    async with tab(browser, world.url) as one:
        await one.open("mesh")
        await one.log_in(world.token)
        yield one


async def confirm(shown: Tab, question: str) -> None:
    """Answer the question before an order with yes, and see in the log that the order is done."""
    await shown.see(question, "dialog")
    await shown.press("Yes, do it", within="dialog")
    await shown.page.locator("dialog").wait_for(state="detached")
    await shown.open("orders")
    await shown.see("done", "tbody tr:first-child")
    await shown.see("ann at 127.0.0.1", "tbody tr:first-child")


async def test_a_link_is_paused_and_resumed(shown: Tab, world: PageWorld) -> None:
    await shown.open("link/paris-tokyo")
    await shown.press("Pause", within="main")
    await confirm(shown, "Pause the link paris-tokyo?")
    assert read_holds(world.state / "sites" / "paris").links == {"paris-tokyo"}
    await shown.picture("orders")
    await shown.open("link/paris-tokyo")
    await shown.see("paused", ".cards")
    await shown.press("Resume", within="main")
    await confirm(shown, "Resume the link paris-tokyo?")
    assert read_holds(world.state / "sites" / "paris") == Holds()


async def test_a_site_is_drained(shown: Tab, world: PageWorld) -> None:
    await shown.open("site/tokyo")
    await shown.press("Drain", within="main")
    await confirm(shown, "Drain tokyo?")
    assert read_holds(world.state / "sites" / "tokyo").draining


async def test_a_gap_is_accepted(shown: Tab, world: PageWorld) -> None:
    SiteGaps(world.state / "sites" / "paris").found(GAP)
    await shown.open("site/paris")
    await shown.see("offsets 5 to 8 of the log")
    await shown.press("Accept the gap")
    await confirm(shown, "Go on without these messages at paris?")
    assert [(site, what) for site, what, _ in world.nodes.done] == [("paris", "gap")]


async def test_messages_put_aside_are_looked_at_retried_and_dropped(
    shown: Tab, world: PageWorld
) -> None:
    queue = [put_aside("1f", b"first"), put_aside("2e", b"\x00\xff\xfe")]
    world.nodes.aside["tokyo", "dead-letters"] = queue
    await shown.open("site/tokyo")
    await shown.press("Look into dead letters")
    await shown.see("2 wait")
    await shown.press("2e")
    await shown.see("it is no text: bytes are escaped")
    assert r"\xff\xfe" in await shown.text("pre")
    await shown.picture("site")
    await shown.press("Retry 1f")
    await confirm(shown, "Send 1f again?")
    assert [one["id"] for one in queue] == ["2e"]
    await shown.open("site/tokyo")
    await shown.press("Look into dead letters")
    await shown.press("Drop all")
    await confirm(shown, "Drop all 1?")
    assert queue == []


async def test_an_audit_is_repaired(shown: Tab, world: PageWorld) -> None:
    (world.state / "audit").mkdir()
    report = {"sentence": "2 messages are lost", "shown": [], "why_not_proven": []}
    write(world.state / "audit" / "from=2026-11-21", **report)  # the table has none of them left
    await shown.open("audits")
    await shown.see("2 messages are lost")
    await shown.press("Repair")
    await confirm(shown, "Repair what the audit of 2026-11-21 found lost?")
    await shown.see("nothing is lost, there is nothing to repair")


async def test_an_order_is_not_given_without_a_yes_nor_without_the_token(
    browser: Any, world: PageWorld
) -> None:
    async with tab(browser, world.url) as stranger:
        await stranger.open("site/paris")
        await stranger.press("Pause", within="main")
        await stranger.page.get_by_label("Your name").fill("eve")
        await stranger.page.get_by_label("Token").fill("not the token at all")
        await stranger.page.keyboard.press("Enter")
        await stranger.see("the token is wrong", "dialog")
        await stranger.page.get_by_label("Token").fill(world.token)
        await stranger.page.keyboard.press("Enter")
        await stranger.see("Pause paris?", "dialog")
        await stranger.page.keyboard.press("Escape")
        await stranger.page.locator("dialog").wait_for(state="detached")
    assert (await world.json("/api/orders"))["orders"] == []
    assert read_holds(world.state / "sites" / "paris") == Holds()
