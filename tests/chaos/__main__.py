"""`python -m tests.chaos`, or `make chaos MINUTES=10 SEED=1`: chaos on real brokers.

Exit status 0; 1 if something that is promised did not hold; 2 if the call is wrong.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from isthmus.brokers.installation import find_installation
from isthmus.display import status_line
from tests.chaos import report
from tests.chaos.run import run
from tests.chaos.schedule import KINDS, SHARED_SITE, draw, kinds_of
from tests.chaos.timeline import Sample
from tests.chaos.world import ALL_GRAPHS, GRAPHS, GROUP, SITES

DEFAULT_OUT = Path(".isthmus/chaos")


def main(words: list[str] | None = None) -> int:
    arguments = _arguments().parse_args(words)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    graph = arguments.graph or list(GRAPHS)[arguments.seed % len(GRAPHS)]
    usual = kinds_of(nodes=arguments.nodes, group=graph == GROUP)
    kinds = [kind for kind in arguments.kinds or usual if kind not in arguments.without]
    if not arguments.nodes and (in_vain := [kind for kind in kinds if KINDS[kind].of_nodes]):
        _arguments().error(f"{', '.join(in_vain)} need --nodes")
    if graph != GROUP and (in_vain := [kind for kind in kinds if KINDS[kind].of_group]):
        _arguments().error(f"{', '.join(in_vain)} need --graph {GROUP}")
    schedule = draw(arguments.seed, arguments.minutes * 60, SITES, ALL_GRAPHS[graph], kinds)
    for fault in schedule:
        console.print(str(fault))
    if arguments.schedule:
        return 0
    given = sys.argv[1:] if words is None else words
    command = shlex.join([".venv/bin/python", "-m", "tests.chaos", *given])
    out = arguments.out or DEFAULT_OUT / f"seed-{arguments.seed}"
    folder = Path(tempfile.mkdtemp(prefix="isthmus-chaos-"))
    with status_line("starting", Console(stderr=True)) as told:

        def seen(sample: Sample) -> None:
            rates = ", ".join(
                f"{site} {'-' if rate is None else f'{rate:.0f}'}"
                for site, rate in sample.delivered_per_s.items()
            )
            told(f"{sample.at_s:.0f} s; delivered a second: {rates}")

        outcome = uvloop.run(
            run(
                folder,
                find_installation(arguments.rabbitmq),
                graph,
                schedule,
                seed=arguments.seed,
                per_second=arguments.rate,
                say=console.print,
                seen=seen,
                several_nodes=arguments.nodes,
            )
        )
    for line in report.lines(outcome):
        console.print(line)
    for file in report.write(outcome, out, arguments.seed, command):
        console.print(f"written: {file}")
    if outcome.broken:
        console.print(f"again: {command}\nlogs: {folder}")
        return 1
    if not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults")
    parser.add_argument("--seed", type=int, default=1, help="decides which, where and when")
    parser.add_argument("--rate", type=float, default=24.0, help="messages a second, each site")
    parser.add_argument(
        "--graph", choices=list(ALL_GRAPHS), help="ring and line by turns, if not given"
    )
    parser.add_argument("--kinds", type=_kinds, metavar="A,B", help=", ".join(KINDS))
    parser.add_argument("--nodes", action="store_true", help=f"two nodes at {SHARED_SITE}")
    parser.add_argument("--without", type=_kinds, default=[], metavar="A,B", help="all but these")
    parser.add_argument("--schedule", action="store_true", help="only print the schedule")
    parser.add_argument("--rabbitmq", type=Path, metavar="DIR", help="another RabbitMQ")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"default: {DEFAULT_OUT}/seed-N")
    parser.add_argument("--keep", action="store_true", help="keep brokers' data and nodes' logs")
    return parser


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    for kind in kinds:
        if kind not in KINDS:
            raise argparse.ArgumentTypeError(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    return kinds


if __name__ == "__main__":
    sys.exit(main())
