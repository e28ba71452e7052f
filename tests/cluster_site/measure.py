"""Measures the outages of a site on three broker nodes: `python -m tests.cluster_site.measure`.

One line of a table a disturbance of one node; needs root, and some minutes a disturbance.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from isthmus.brokers.installation import find_installation
from isthmus.brokers.private_brokers import CLUSTER_NET_TICK_S
from tests.cluster_site.disturbances import DISTURBANCES
from tests.cluster_site.trial import run_trial

COLUMNS = ("node", "leads", "paris to tokyo", "tokyo to paris", "tokyo and oslo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rabbitmq", type=Path)
    parser.add_argument("--rate", type=float, default=1000, help="messages a second from each end")
    parser.add_argument("--net-tick", type=int, default=CLUSTER_NET_TICK_S, help="seconds")
    parser.add_argument("--only", default="", help="disturbances whose name has one of these words")
    parser.add_argument("--keep", action="store_true", help="keep the folders, and say where")
    chosen = parser.parse_args()
    # As an error, so that nodes and namespaces are taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    installation = find_installation(chosen.rabbitmq)
    print(f"RabbitMQ {installation.version}, net tick {chosen.net_tick} s")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for name in DISTURBANCES:
        if not any(words in name for words in chosen.only.split(",")):
            continue
        folder = Path(tempfile.mkdtemp(prefix="isthmus-cluster-"))
        outcome = asyncio.run(
            run_trial(
                folder,
                installation,
                name,
                per_second=chosen.rate,
                net_tick_s=chosen.net_tick,
            )
        )
        print(f"{name}: {outcome}", flush=True)
        if chosen.keep:
            print(folder, flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
