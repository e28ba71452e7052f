"""Brokers' CPU in a hop: each part alone, with the choices of a relay.

    .venv/bin/python -m benchmarks.floors [--rabbitmq DIR] [--rounds 3] [--only TEXT ...]

One private broker with two schedulers. All passes of `passes.py` are run in turn, round after
round. What is printed is the broker's CPU (user and system, from /proc) in microseconds a message,
until it rests, without what it uses at rest: median, least and most of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.compare.brokers import Brokers
from benchmarks.floors.passes import KINDS, Pass, passes
from benchmarks.floors.site import NAME, Site
from isthmus.brokers.installation import find_installation
from relay.bulk_amqp import BulkAmqpError

Figures = dict[tuple[str, str, str], list[float]]
_WARM_UPS = 1
_WITHIN_S = 60.0


async def _run(site: Site, one: Pass, messages: int, figures: Figures) -> None:
    count = messages * one.more // one.each
    if one.kind == "stream":
        await site.declare(one.kind, KINDS[one.kind])
    await site.rests()
    feed = one.feed.run(site, one.kind, count)
    drain = one.drain.run(site, one.kind, count)
    works: tuple[tuple[str, str, Coroutine[Any, Any, None]], ...]
    if one.both:
        works = (("both", one.fed, _at_once(feed, drain)),)
    else:
        works = (("in", one.fed, feed), ("out", one.drained, drain))
    try:
        for part, name, work in works:
            async with asyncio.timeout(_WITHIN_S):
                us = await site.us(work, count * one.each)
            figures.setdefault((part, one.kind, name), []).append(us)
            print(f"  {part} | {one.kind} | {name}: {us:.2f}", flush=True)
    except (BulkAmqpError, TimeoutError) as error:
        print(f"  {one.kind}, {one.fed}, {one.drained}: {error!r}", flush=True)
    finally:
        feed.close()
        drain.close()
        await (site.delete if one.kind == "stream" else site.purge)(one.kind)


async def _at_once(feed: Coroutine[Any, Any, None], drain: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(drain)
        group.create_task(feed)


async def _measure(options: argparse.Namespace) -> None:
    installation = find_installation(options.rabbitmq)
    is_new = installation.release >= (4,)
    classics = ("classic v2",) if is_new else ("classic v1", "classic v2")
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="isthmus-floors-") as folder:
        async with Brokers(installation, Path(folder), [NAME]) as brokers:
            site = Site(brokers)
            for kind in ("quorum", *classics):
                await site.declare(kind, KINDS[kind])
            idle = await site.look_at_rest()
            version = ".".join(map(str, installation.release))
            print(f"RabbitMQ {version}, {options.messages} messages; at rest {idle:.3f} CPU")
            every = passes(classics, has_amqp10=is_new)
            todo = [one for one in every if any(text in str(one) for text in options.only)]
            for one in todo[:_WARM_UPS]:
                await _run(site, one, options.messages, {})
            for number in range(options.rounds):
                for one in todo:
                    await _run(site, one, options.messages, figures)
                print(f"round {number + 1} of {options.rounds} done", flush=True)
                if options.json is not None:
                    told = {" | ".join(key): each for key, each in figures.items()}
                    options.json.write_text(json.dumps(told, indent=1) + "\n")
    _tell(figures)


def _tell(figures: Mapping[tuple[str, str, str], Sequence[float]]) -> None:
    titles = {"in": "In, alone", "out": "Out, alone", "both": "In and out at once"}
    for part, title in titles.items():
        print(f"\n| {title} | | us a message | least | most |\n|---|---|---:|---:|---:|")
        for (where, kind, name), each in figures.items():
            if where == part:
                told = f"{statistics.median(each):.2f} | {min(each):.2f} | {max(each):.2f}"
                print(f"| {kind} | {name} | {told} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rabbitmq", type=Path, help="a server's folder, or a chroot with one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=30_000)
    only = "passes whose repr() has one of these in it"
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help=only)
    parser.add_argument("--json", type=Path, help="write all figures there, after each round")
    uvloop.run(_measure(parser.parse_args()))
