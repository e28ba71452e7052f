"""Members of a group without nodes, a process a site: what two cores carry of thirty-two sites."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

from benchmarks.multicast.member_process import MemberSettings, as_words
from benchmarks.multicast.site_load import Carried, Spread
from benchmarks.multicast.site_network import SiteNetwork

_START_S = 10.0
_START_EACH_S = 0.8
_SETTLE_S = 3.0
_AT_ONCE = 8
"""Processes that start at the same time."""


class AloneMembers:
    """Members at all sites of a network, of which the first publishes."""

    def __init__(self, network: SiteNetwork, rate: float) -> None:
        self._network = network
        self._rate = rate

    async def carry(self, spread: Spread) -> Carried:
        """Publish to all; return the cost. Batches that the group has not brought, for which there
        are links, count as missing.
        """
        count = self._network.count
        began = time.monotonic() + _START_S + _START_EACH_S * count
        async with AsyncExitStack() as stack:
            members = []
            for site in range(count):
                members.append(await self._start(stack, self._settings(site, spread, began)))
                if site % _AT_ONCE == _AT_ONCE - 1:
                    for member in members[-_AT_ONCE:]:
                        await _line(member)
            for member in members[count - count % _AT_ONCE :]:
                await _line(member)
            if time.monotonic() > began:
                raise TimeoutError("the members have not started in time")
            await asyncio.sleep(began - time.monotonic())
            before = self._sent()
            told = [json.loads(await _line(member)) for member in members]
            after = self._sent()
        delays = [delay for one in told[1:] for delay in one["delays_ms"]]
        publisher, everyone = after[0] - before[0], sum(after) - sum(before)
        missing = spread.count * (count - 1) - len(delays)
        return Carried(publisher, 0, everyone, tuple(delays), missing)

    def _sent(self) -> list[int]:
        return [self._network.sent_bytes(site) for site in range(self._network.count)]

    def _settings(self, site: int, spread: Spread, began: float) -> MemberSettings:
        return MemberSettings(
            site=site,
            sites=self._network.count,
            address=self._network.address(site),
            rate=self._rate,
            count=spread.count,
            size=spread.size,
            per_second=spread.per_second,
            began=began,
            settle_s=_SETTLE_S,
        )

    async def _start(
        self, stack: AsyncExitStack, settings: MemberSettings
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self._network.inside(settings.site),
            *("setpriv", "--pdeathsig", "KILL", "--", sys.executable),
            *("-m", "benchmarks.multicast.member_process", as_words(settings)),
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        stack.push_async_callback(_end, process)
        return process


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a member has ended")
    return line


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
