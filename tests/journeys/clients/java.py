"""Java clients: programs beside this file, run with the jars that `make client-tools` fetches."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

TOP = Path(__file__).parents[3]
JARS = TOP / ".tools" / "client-jars"
WITHIN_S = 120.0
_FLAGS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dfile.encoding=UTF-8",
)
"""Flags for programs that run for seconds, wherever the locale is none of UTF-8."""


def compiled(folder: Path) -> Path:
    """Compile the programs into the folder; return the folder. A Java runtime is enough."""
    programs = [str(file) for file in sorted(Path(__file__).parent.glob("*.java"))]
    compiler = (
        "org.eclipse.jdt.internal.compiler.batch.Main",
        "-17",
        "-nowarn",
        "-encoding",
        "UTF-8",
    )
    command = ("java", *_FLAGS, "-cp", f"{JARS}/*", *compiler, "-cp", _jars(), "-d", str(folder))
    done = subprocess.run(
        (*command, *programs), capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n(make client-tools fetches the jars)"
    return folder


async def run_java(classes: Path, program: str, *words: str) -> list[list[str]]:
    """Run a program; return the lines that the program prints, each cut at its tabulators."""
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL", "--", "java", *_FLAGS),
        *("-cp", f"{classes}:{JARS}/*", program, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{out.decode()}{errors.decode()}"
    return [line.split("\t") for line in out.decode().splitlines()]


def _jars() -> str:
    return ":".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
