"""`python -m benchmarks.proxy_process`: the proxy as a process, so that its CPU can be told apart.

Prints one JSON line when it listens, `{"control": PORT, "lines": {NAME: PORT}}`, and runs until
SIGTERM or SIGINT (or until its stdin ends, with --until-stdin-ends).
"""

import argparse
import asyncio
import json
import os
import signal
import sys

import uvloop

from benchmarks.proxy_process.control import ControlServer, parse_address
from wan_proxy.condition import PRESETS, ConditionError
from wan_proxy.proxy import WanProxy


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy_process", description=__doc__)
    parser.add_argument(
        "--control", type=int, default=0, metavar="PORT", help="0, the default, takes a free one"
    )
    parser.add_argument(
        "--line",
        action="append",
        default=[],
        metavar="NAME=HOST:PORT[,CONDITION]",
        help=f"may be repeated; CONDITION is one of {', '.join(PRESETS)}",
    )
    parser.add_argument("--seed", type=int, default=0, help="of jitter and late segments")
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="end with whoever holds our stdin"
    )
    return parser


def _parse_line(text: str) -> tuple[str, str, int, str]:
    name, equals, rest = text.partition("=")
    if not equals or not name:
        raise ConditionError("line", text, "give NAME=HOST:PORT[,CONDITION]")
    address, _, condition = rest.partition(",")
    return (name, *parse_address(address), condition or "LAN")


async def _run(control_port: int, lines: list[str], seed: int, until_stdin_ends: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with WanProxy(seed=seed) as proxy:
        for text in lines:
            name, host, port, condition = _parse_line(text)
            await proxy.open_line(name, host, port, condition)
        control = ControlServer(proxy)
        bound = await control.start(control_port)
        ports = {name: line.port for name, line in proxy.lines.items()}
        print(json.dumps({"control": bound, "lines": ports}), flush=True)
        if until_stdin_ends:
            loop.add_reader(sys.stdin.fileno(), _watch, sys.stdin.fileno(), stop)
        await stop.wait()
        await control.close()


def _watch(stdin: int, stop: asyncio.Event) -> None:
    if not os.read(stdin, 4096):
        stop.set()


def main() -> int:
    """Run the proxy; return the exit code: 2 for bad arguments."""
    arguments = _arguments().parse_args()
    try:
        uvloop.run(
            _run(arguments.control, arguments.line, arguments.seed, arguments.until_stdin_ends)
        )
    except (ConditionError, OSError) as error:
        print(f"proxy_process: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
