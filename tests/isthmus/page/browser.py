"""Chromium for the tests of the page, by Playwright, which `make test-tools` installs."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[3]
TOOLS = TOP / ".tools" / "page"
CHROMIUM = os.environ.get("ISTHMUS_CHROMIUM", "/usr/bin/chromium")
PICTURES = TOP / "build" / "page"
"""Folder of the screenshots."""
WITHIN_MS = 15_000


def _is_debian() -> bool:
    release = Path("/etc/os-release")
    return release.exists() and "\nID=debian\n" in f"\n{release.read_text()}\n"


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A browser that ends with the block. Where there is none the test fails on Debian, and is
    skipped elsewhere.
    """
    if not Path(CHROMIUM).exists():
        said = f"no Chromium at {CHROMIUM}: `make test-tools`, or name one in ISTHMUS_CHROMIUM"
        # Set-up has one on Debian: there the tests are not to pass unnoticed without.
        (pytest.fail if _is_debian() else pytest.skip)(said)
    # Only for the time being: other tests look at what is installed.
    sys.path.append(str(TOOLS))
    from playwright.async_api import async_playwright

    async with AsyncExitStack() as parts:
        parts.callback(sys.path.remove, str(TOOLS))
        playwright = await parts.enter_async_context(async_playwright())
        # A sandbox needs rights that root in a container may lack.
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        parts.push_async_callback(browser.close)
        yield browser


class Tab:
    """A tab of the browser at a page, with whatever the browser complains about."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        """Hosts that the tab has sent requests to."""
        page.set_default_timeout(WITHIN_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._console)
        page.on("request", lambda request: self.asked.add(request.url.split("/")[2]))
        page.on("dialog", lambda dialog: self.complaints.append(f"alert {dialog.message}"))

    def _console(self, message: Any) -> None:
        # An answer of 400 and above is shown by the page, which the tests look at.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    async def open(self, view: str = "mesh") -> None:
        await self.page.goto(f"{self.url}/#{view}")
        await self.see("live, revision", "#live")

    async def text(self, selector: str = "main") -> str:
        return str(await self.page.inner_text(selector))

    async def see(self, text: str, selector: str = "main") -> None:
        """Wait until a part of the page has the text."""
        await self.page.locator(selector).filter(has_text=text).first.wait_for()

    async def press(self, name: str, *, within: str = "body") -> None:
        """Press the button of that name, as the keyboard does."""
        button = self.page.locator(within).get_by_role("button", name=name, exact=True).first
        await button.focus()
        await self.page.keyboard.press("Enter")

    async def log_in(self, token: str) -> None:
        await self.press("Log in", within="header")
        await self.page.get_by_label("Your name").fill("ann")
        await self.page.get_by_label("Token").fill(token)
        await self.page.keyboard.press("Enter")
        await self.see("ann", "#person")

    async def faults(self) -> list[str]:
        """Faults that axe-core finds, for people who see or move differently; the tab must have
        been made with `bypass_csp`.
        """
        if not await self.page.evaluate("() => 'axe' in window"):
            (script,) = TOOLS.glob("axe-*.min.js")
            await self.page.add_script_tag(path=script)
        found = await self.page.evaluate("() => axe.run()")
        return [
            f"{one['id']}: {node['html']}" for one in found["violations"] for node in one["nodes"]
        ]

    async def picture(self, name: str) -> None:
        """Keep a screenshot of the whole page in build/page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


@asynccontextmanager
async def tab(browser: Any, url: str, **options: Any) -> AsyncIterator[Tab]:
    """A tab of its own profile, at no view yet; fails if the browser complained, or if the page
    asked another host.
    """
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, **options)
    try:
        found = Tab(await context.new_page(), url)
        yield found
        assert found.complaints == []
        assert found.asked <= {found.url.split("/")[2]}
    finally:
        await context.close()
