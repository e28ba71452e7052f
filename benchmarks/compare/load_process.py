"""The load: a process that publishes and one that consumes, so that their cost is told apart.

Each is `python -m benchmarks.compare.load_process`; JSON lines go in, one comes back for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import uvloop

from benchmarks.compare import load_clients
from benchmarks.compare.downloads import PACKAGES
from benchmarks.compare.shop_documents import ShopDocuments
from isthmus.load.messages import Bodies, HalfRandom, Noise
from isthmus.load.sink import Latencies, RunArrivals
from isthmus.load.source import RunSource

_LINE_BYTES = 1 << 24


def _bodies(kind: str, size: int) -> Bodies:
    if kind == "shop":
        return ShopDocuments(size)
    return Noise(size) if kind == "noise" else HalfRandom(size)


class _Worker:
    """Commands of the process: a method has the fields of its line as parameters."""

    def __init__(self) -> None:
        self._sinks: dict[str, RunArrivals] = {}
        self._bodies: dict[tuple[str, int], Bodies] = {}
        self._sources: list[RunSource] = []
        self._publishing: asyncio.Future[list[None]] | None = None
        self._going = False
        self._began = 0.0
        self._mean_bytes = 0

    async def consume(self, uris: Mapping[str, str], queue: str) -> None:
        """Consume at these sites from now on."""
        for site, uri in uris.items():
            self._sinks[site] = await load_clients.consuming(uri, queue)

    async def begin(self, run: str) -> None:
        for sink in self._sinks.values():
            sink.begin(bytes.fromhex(run))

    async def wait(self, counts: Mapping[str, int], quiet_s: float) -> dict[str, Any]:
        """Wait until so many messages have come at each site, or none more for a time; return the
        counts.
        """
        loop = asyncio.get_running_loop()
        before, since = -1, loop.time()
        while any(self._sinks[site].delivered < count for site, count in counts.items()):
            came = sum(sink.delivered for sink in self._sinks.values())
            if came != before:
                before, since = came, loop.time()
            elif loop.time() > since + quiet_s:
                break
            await asyncio.sleep(0.01)
        return {site: _sink_report(site, sink) for site, sink in self._sinks.items()}

    async def now(self) -> float:
        """Return the time by the clock of all these times."""
        return time.monotonic()

    async def latencies(self) -> dict[str, dict[str, Any]]:
        """Return the latencies at each site since the last call."""
        told = {}
        for site, sink in self._sinks.items():
            came = Latencies()
            for one in sink.latencies.values():
                came.merge(one)
            sink.latencies = {origin: Latencies() for origin in sink.latencies}
            told[site] = {
                "count": came.count,
                "p50_ms": came.percentile_ms(50),
                "p99_ms": came.percentile_ms(99),
            }
        return told

    async def publish(self, count: int, **asked: Any) -> dict[str, Any]:
        """Publish so many messages at each origin, and wait for the confirms."""
        await self.publish_on(count=count, **asked)
        assert self._publishing is not None
        await self._publishing
        return await self.publish_off()

    async def publish_on(
        self,
        origins: list[tuple[int, str]],
        exchange: str,
        run: str,
        rate: float,
        burst: int,
        body: str,
        size: int,
        keys: list[str],
        count: int | None = None,
    ) -> None:
        """Publish at each of (number, URI), until `publish_off`, or `count` messages; `rate` 0: as
        fast as possible. Keys go by number.
        """
        if (body, size) not in self._bodies:
            self._bodies[body, size] = _bodies(body, size)
        self._mean_bytes = self._bodies[body, size].mean_bytes
        self._sources = [
            load_clients.source(
                uri,
                bytes.fromhex(run),
                number,
                exchange,
                self._bodies[body, size],
                keys[number % len(keys)].encode(),
            )
            for number, uri in origins
        ]
        for source in self._sources:
            await source.open()
        self._going, self._began = True, time.monotonic()
        each = (
            self._publish_one(source, nth / len(origins), rate, burst, count)
            for nth, source in enumerate(self._sources)
        )
        self._publishing = asyncio.gather(*each)

    async def publish_off(self) -> dict[str, Any]:
        """Return the begin of publishing (monotonic clock), the time until the broker had answered
        all, and the number of confirmed messages.
        """
        assert self._publishing is not None
        self._going = False
        await self._publishing
        took = time.monotonic() - self._began
        for source in self._sources:
            await source.close()
        return {
            "began": self._began,
            "took": took,
            "confirmed": sum(source.confirmed for source in self._sources),
            "bytes": self._mean_bytes,
        }

    async def _publish_one(
        self, source: RunSource, phase: float, rate: float, burst: int, count: int | None
    ) -> None:
        """`phase`: the part of a burst's time by which its own come later than the first's."""
        if rate:
            await asyncio.sleep(phase * burst / rate)
            await source.publish_at(rate, count, burst=burst, going=lambda: self._going)
        else:
            await source.publish(count, going=lambda: self._going)


def _sink_report(site: str, sink: RunArrivals) -> dict[str, Any]:
    if sink.ended is not None:
        raise RuntimeError(f"the consumer at {site} has ended: {sink.ended}")
    return {
        "delivered": sink.delivered,
        "strangers": sink.strangers,
        "last": sink.last_at_ns / 1e9,
        "origins": {
            origin: {
                "delivered": arrivals.delivered,
                "duplicates": arrivals.duplicates,
                "out_of_order": arrivals.out_of_order,
                "p50_ms": sink.latencies[origin].percentile_ms(50),
                "p99_ms": sink.latencies[origin].percentile_ms(99),
                "longest_ms": sink.latencies[origin].longest_ms,
            }
            for origin, arrivals in sink.by_origin.items()
        },
    }


async def _serve() -> None:
    worker = _Worker()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        asked = json.loads(line)
        told = await getattr(worker, asked.pop("do"))(**asked)
        print(json.dumps(told), flush=True)


class LoadProcess:
    """Load process as its starter has it; ends with its stdin."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        path = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.compare.load_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )

    async def do(self, what: str, **asked: Any) -> Any:
        """Raises RuntimeError when the process has ended; why is on its standard error."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **asked}).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load's process has ended: see its standard error above")
        return json.loads(line)

    async def stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()


if __name__ == "__main__":
    uvloop.run(_serve())
