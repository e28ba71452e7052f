"""Orders over HTTP, run as commands against the nodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.page import desk
from isthmus.page.order_log import ORDERS_FILE, OrderLog
from relay.ledger.rows import Stage
from relay.log.open_gap import OpenGap
from relay.operator.gaps import SiteGaps
from relay.operator.holds import Holds, read_holds
from tests.isthmus.page.page_world import PageWorld, page_world
from tests.waiting import until

GAP = OpenGap(Stage.LINKED_OUT, "x", 4, 9, 1000, link="paris-tokyo", neighbour="tokyo")


async def outcome(world: PageWorld, **order: Any) -> dict[str, Any]:
    """Give an order with the token; return it from the log once it has ended."""
    status, text = await world.post("/api/orders", order, headers=world.bearer)
    assert status == 200, text
    given = json.loads(text)

    async def ended() -> dict[str, Any] | None:
        logged = (await world.json("/api/orders"))["orders"]
        (found,) = [one for one in logged if one["id"] == given["id"]]
        return found if found["outcome"] != "running" else None

    found: dict[str, Any] = await until(ended, "the order has ended", 30, every_s=0.1)
    return found


async def test_pause_and_resume_hold_back_and_release(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        folder = world.state / "sites" / "paris"
        paused = await outcome(world, order="pause", link="paris-tokyo")
        assert (paused["outcome"], paused["text"]) == ("done", "link paris-tokyo: paused")
        assert paused["who"] == "a program with the token at 127.0.0.1"
        assert read_holds(folder) == Holds(links=frozenset({"paris-tokyo"}))
        resumed = await outcome(world, order="resume", link="paris-tokyo")
        assert resumed["outcome"] == "done"
        assert read_holds(folder) == Holds()
        lines = (world.state / ORDERS_FILE).read_text().splitlines()
        assert len(lines) == 4


async def test_a_gap_that_has_grown_since_it_was_shown_is_not_accepted(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        SiteGaps(world.state / "sites" / "paris").found(GAP)
        other = await outcome(world, order="accept-gap", site="paris", gap="0123456789ab")
        assert other["outcome"] == "failed"
        assert "look again" in other["text"]


async def test_an_order_to_a_silent_node_fails_with_what_to_do(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        (world.state / "sites" / "tokyo" / "node.json").unlink()
        failed = await outcome(world, order="drop", site="tokyo", aside="quarantine", all=True)
        assert failed["outcome"] == "failed"
        assert "run this where it runs" in failed["text"]


async def test_an_order_that_cannot_be_logged_is_not_given(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        (world.state / ORDERS_FILE).mkdir()
        pause = {"order": "pause", "site": "paris"}
        status, text = await world.post("/api/orders", pause, headers=world.bearer)
        assert status == 503
        assert "not done, since it cannot be logged" in text
        assert read_holds(world.state / "sites" / "paris") == Holds()


async def test_too_many_orders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "MOST_WAITING", 1)
    async with page_world(tmp_path) as world:
        pause = {"order": "pause", "site": "paris"}
        answers = await asyncio.gather(
            *(world.post("/api/orders", pause, headers=world.bearer) for _ in range(2))
        )
        assert sorted(status for status, _ in answers) == [200, 503]


async def test_orders_that_run_when_the_page_ends_end_with_it(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        pause = {"order": "pause", "site": "paris"}
        status, _ = await world.post("/api/orders", pause, headers=world.bearer)
        assert status == 200
        file = world.state / ORDERS_FILE
    last = json.loads(file.read_text().splitlines()[-1])
    assert last["status"] is None
    assert "the page ended before the order did" in last["text"]
    assert OrderLog(world.state).latest()[0].outcome == "unknown"
