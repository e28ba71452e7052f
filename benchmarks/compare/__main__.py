"""`python -m benchmarks.compare [ROW ...]`: what `make bench` runs.

Without rows: all of them that have no result of this commit yet, so that a run that was ended goes
on. A row's result is benchmarks/results/ROW-VERSION.json, written when the row is done. With
--quick some rows, short, whose ratios are compared with the committed results; nothing is written
but to the file of --json, and nothing fails for being slow. Rows of Isthmus alone take amounts:
`--amount backlog=200000`, `--amount sites=2,4`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.compare.downloads import DownloadError
from benchmarks.compare.machine import commit
from benchmarks.compare.rows import ROWS
from benchmarks.compare.runner import run
from benchmarks.compare.studies import STUDIES
from benchmarks.compare.study import run_study
from isthmus.brokers.errors import BrokerStartError, RabbitMQNotFoundError
from isthmus.brokers.installation import RabbitMQInstallation, find_installation

RESULTS = Path(__file__).resolve().parent.parent / "results"
ROUNDS, QUICK_ROUNDS = 3, 3
NAMES = (*ROWS, *STUDIES)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rabbitmq", type=Path, help="a server's folder, or a chroot with one")
    parser.add_argument("--rounds", type=int)
    told = ", ".join(f"{study.name} ({study.unit})" for study in STUDIES.values())
    parser.add_argument(
        "--amount",
        action="append",
        default=[],
        type=_amounts,
        metavar="ROW=N[,N]",
        help=f"other amounts than the row has: {told}",
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, help="write what --quick found there")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for row in options.rows:
        if row not in NAMES:
            parser.error(f"there is no row {row!r}: {', '.join(NAMES)}")
    return options


def _amounts(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse `ROW=N[,N]`. Raise ValueError, which argparse reports."""
    row, _, amounts = text.partition("=")
    if row not in STUDIES:
        raise ValueError(row)
    return row, tuple(int(float(one)) for one in amounts.split(","))


async def _run(
    name: str, installation: RabbitMQInstallation, options: argparse.Namespace
) -> dict[str, Any]:
    """A row's document."""
    if name in STUDIES:
        study = STUDIES[name]
        amounts = (study.quick or ()) if options.quick else study.amounts
        amounts = dict(options.amount).get(name, amounts)
        return await run_study(study, installation, amounts, _say, quick=options.quick)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    return await run(ROWS[name], installation, rounds, _say, quick=options.quick)


def _result_file(results: Path, row: str, installation: RabbitMQInstallation) -> Path:
    return results / f"{row}-{'.'.join(map(str, installation.release[:2]))}.json"


def _say(text: str) -> None:
    print(text, flush=True)


def _tell_bars(bars: list[dict[str, Any]]) -> None:
    for bar in bars:
        sign = {True: "reached", False: "NOT REACHED", None: "no bar"}[bar["ok"]]
        compared = ">=" if bar["at_least"] else "<="
        _say(f"  {bar['what']}: {bar['reached']:.2f} (wanted {compared} {bar['wanted']}) {sign}")


async def _all(options: argparse.Namespace, installation: RabbitMQInstallation) -> bool:
    """Run the named rows, or all; False if some were left out, whose servers cannot be fetched."""
    ran_all = True
    options.results.mkdir(parents=True, exist_ok=True)
    for name in options.rows or NAMES:
        file = _result_file(options.results, name, installation)
        if (
            not options.rows
            and commit()
            and file.exists()
            and json.loads(file.read_text())["commit"] == commit()
        ):
            _say(f"{name}: {file.name} is of this commit")
            continue
        try:
            told = await _run(name, installation, options)
        except DownloadError as error:
            if options.rows:
                raise
            _say(f"{name}: not run: {error}")
            ran_all = False
            continue
        temporary = file.with_suffix(".new")
        temporary.write_text(json.dumps(told, indent=1) + "\n")
        temporary.replace(file)
        _tell_bars(told["bars"])
    return ran_all


async def _quick(options: argparse.Namespace, installation: RabbitMQInstallation) -> bool:
    """Ratios beside the last committed ones: told, and never a failure."""
    found = []
    for name in options.rows or NAMES:
        if (ROWS[name] if name in ROWS else STUDIES[name]).quick is None:
            continue
        told = await _run(name, installation, options)
        found.append(told)
        file = _result_file(options.results, name, installation)
        kept = json.loads(file.read_text())["bars"] if file.exists() else []
        before = {bar["what"]: bar["reached"] for bar in kept}
        for bar in told["bars"]:
            was = before.get(bar["what"])
            beside = "no committed result" if was is None else f"committed {was:.2f}"
            _say(f"  {bar['what']}: {bar['reached']:.2f}; {beside}")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return True


def main() -> int:
    """Return 0 however slow; 2 when something could not be measured."""
    options = _arguments()
    # As by Ctrl-C: servers, processes and network namespaces are ended in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        installation = find_installation(options.rabbitmq)
        run_rows = _quick if options.quick else _all
        ran_all = asyncio.run(run_rows(options, installation))
    except (RabbitMQNotFoundError, BrokerStartError, DownloadError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return 0 if ran_all else 2


if __name__ == "__main__":
    sys.exit(main())
