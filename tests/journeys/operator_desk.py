"""Desk of an operator: the page in a browser, the alerts of a real Prometheus, the runbook."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from federation.mesh_file.quantities import parse_duration
from tests.deploy.rule_tests import RULES, TOP, rules
from tests.isthmus.page.browser import Tab
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.prometheus_server import answer_of
from tests.journeys.supervised_mesh import isthmus
from tests.waiting import until

HASTE = int(os.environ.get("ISTHMUS_TRIAL_HASTE", "10"))
"""Alerts wait for so many times less than in operation."""
SHOWN_WITHIN_S = 120.0
"""Time from the fault to the page, and from the end of an alert's wait to the alert."""
MENDED_WITHIN_S = 180.0


def in_haste(folder: Path) -> Path:
    """Write the rules anew, with each `for` and each window so much shorter; return their file."""

    def shorter(duration: str) -> str:
        return f"{max(1, int(parse_duration(duration) / HASTE))}s"

    document = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(
                r"\[(\w+)\]", lambda window: f"[{shorter(window[1])}]", rule["expr"]
            )
            if "for" in rule:
                rule["for"] = shorter(rule["for"])
    file = folder / RULES.name
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def runbook_section(alert: str) -> str:
    """Return what the runbook says of an alert, to whose section the rule's address leads."""
    (address,) = {rule["annotations"]["runbook_url"] for rule in rules() if rule["alert"] == alert}
    file, _, anchor = address.partition("#")
    sections = (TOP / file).read_text().split("\n### ")
    (found,) = [one for one in sections if one.partition("\n")[0].lower() == anchor]
    return found


@dataclass(frozen=True)
class Fault:
    """Fault: how to plant and mend it, and where an operator sees both."""

    name: str
    alert: str
    about: dict[str, str]
    """Labels of the alert."""
    view: str
    """View of the page."""
    shows: str
    """Text of the view while the fault lasts, and not afterwards."""
    plant: Callable[[], Awaitable[Any]]
    remedy: str
    """Words of the runbook's section on what `mend` does."""
    mend: Callable[[], Awaitable[Any]]

    @property
    def waits_s(self) -> float:
        """Time that the alert waits before it fires."""
        waits = [rule.get("for", "0s") for rule in rules() if rule["alert"] == self.alert]
        return parse_duration(waits[0]) / HASTE


@dataclass
class Desk:
    """Desk of the operator: the page in a browser, Prometheus, and commands."""

    mesh: LiveMesh
    shown: Tab
    alerts: aiohttp.ClientSession
    lines: list[str] = field(default_factory=list)

    async def firing(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that fire."""
        data = await answer_of(self.alerts, "alerts")
        return [one["labels"] for one in data["alerts"] if one["state"] == "firing"]

    async def fires(self, fault: Fault) -> bool:
        """Return whether the fault's alert fires."""
        wanted = {"alertname": fault.alert, **fault.about}.items()
        return any(wanted <= labels.items() for labels in await self.firing())

    async def sees(self, fault: Fault) -> bool:
        """Return whether the page shows the fault."""
        return fault.shows in await self.shown.text("main")

    async def command(self, command: str, *words: str) -> str:
        """Run a command on the mesh file, which has to succeed; return what it said."""
        code, said = await isthmus(self.mesh, command, *words)
        assert code == 0, said
        return said

    async def confirm(self, order: str) -> None:
        """Press a button of the page, answer its question with yes, and see the order done."""
        await self.shown.press(order)
        await self.shown.press("Yes, do it", within="dialog")
        await self.shown.page.locator("dialog").wait_for(state="detached")
        await self.shown.open("orders")

        async def is_done() -> bool:
            newest = await self.shown.text("tbody tr:first-child")
            assert "failed" not in newest, newest
            return "done" in newest

        await until(is_done, f"{order} is done", MENDED_WITHIN_S, every_s=0.5)

    async def goes_through(self, fault: Fault) -> None:
        """Plant a fault, see it on the page and by its alert, mend it, and see that it is over."""
        assert not await self.fires(fault)
        assert fault.remedy in " ".join(runbook_section(fault.alert).split())
        await self.shown.open(fault.view)
        assert not await self.sees(fault), fault.name
        planted_at = time.monotonic()
        await fault.plant()
        both = asyncio.gather(
            self._after(planted_at, lambda: self.sees(fault), fault, "is shown", SHOWN_WITHIN_S),
            self._after(
                planted_at,
                lambda: self.fires(fault),
                fault,
                "has its alert",
                fault.waits_s + SHOWN_WITHIN_S,
            ),
        )
        seen_s, fired_s = await both
        await self.shown.picture(f"trial-{fault.name.replace(' ', '-')}")
        others = {one["alertname"] for one in await self.firing()} - {fault.alert}
        mended_at = time.monotonic()
        await fault.mend()
        await self.shown.open(fault.view)

        async def is_over() -> bool:
            return not (await self.sees(fault) or await self.fires(fault))

        over_s = await self._after(mended_at, is_over, fault, "is over", MENDED_WITHIN_S)
        self.lines.append(
            f"{fault.name}: page {seen_s:.0f} s, {fault.alert} {fired_s:.0f} s "
            f"(waits {fault.waits_s:.0f} s), over {over_s:.0f} s; beside it {sorted(others)}"
        )
        print(self.lines[-1], flush=True)

    async def _after(
        self,
        began: float,
        condition: Callable[[], Awaitable[bool]],
        fault: Fault,
        what: str,
        within_s: float,
    ) -> float:
        """Wait until the condition holds; return the time (s) since `began`."""

        async def how_far() -> str:
            return f"{await self.shown.text('main')}\n{await self.firing()}"

        told: list[str] = []

        async def holds() -> bool:
            met = await condition()
            if not met:
                told[:] = [await how_far()]
            return met

        await until(holds, lambda: f"{fault.name} {what}: {''.join(told)}", within_s, every_s=0.5)
        return time.monotonic() - began
