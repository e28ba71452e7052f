"""Measures what becomes of a site's lock on three nodes: `python -m tests.locks.trials`.

One line of a table a trial; needs root, and some minutes a trial.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from isthmus.brokers.config import NET_TICK_S
from isthmus.brokers.installation import find_installation
from tests.locks.disturbances import DISTURBANCES
from tests.locks.trial import IGNORE, KHEPRI, PAUSE_MINORITY, run_trial

COLUMNS = (
    "release",
    "partitions, net tick",
    "disturbance",
    "holder loses connection",
    "another takes the queue",
    "both have it",
    "confirmed meanwhile",
    "orphaned",
    "holder's last proof",
    "another's first proof",
    "handovers",
    "a queue takes nothing",
    "the log takes nothing",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rabbitmq", type=Path)
    parser.add_argument(
        "--partitions", default=PAUSE_MINORITY, choices=(PAUSE_MINORITY, IGNORE, KHEPRI)
    )
    parser.add_argument("--net-tick", type=int, default=NET_TICK_S, help="seconds")
    parser.add_argument("--only", default="", help="disturbances whose name has one of these words")
    chosen = parser.parse_args()
    # As an error, so that nodes and namespaces are taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    installation = find_installation(chosen.rabbitmq)
    print("| " + " | ".join(COLUMNS) + " |", flush=True)
    print("|" + "---|" * len(COLUMNS), flush=True)
    conditions = f"{installation.version} | {chosen.partitions}, {chosen.net_tick} s"
    for name in DISTURBANCES:
        if not any(words in name for words in chosen.only.split(",")):
            continue
        outcome = asyncio.run(
            run_trial(installation, name, partitions=chosen.partitions, net_tick_s=chosen.net_tick)
        )
        print(f"| {conditions} | {name} | {outcome.row} |", flush=True)
        for belief in outcome.beliefs:
            print(f"    {belief}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
