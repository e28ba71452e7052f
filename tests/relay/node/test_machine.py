"""What a process does with memory that it has freed, after a big message."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import sys
from pathlib import Path
from relay.node.machine import give_back_big_blocks

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

if sys.argv[1] == "set":
    assert give_back_big_blocks()
big = bytearray(15 << 20)
del big
before = resident_mb()
kept = []
for _ in range(20):
    big, small = bytearray(3 << 20), bytearray(100_000)
    kept.append((big, small))
kept = [small for _, small in kept]
del big
print(resident_mb() - before)
"""


def left_mb(how: str) -> int:
    """What stays with the process of 60 MB that it has freed, between 2 MB that it has not."""
    command = [sys.executable, "-c", PROBE, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_freed_blocks_of_megabytes_go_back_to_the_system() -> None:
    assert left_mb("set") <= 4
    assert left_mb("not set") > 30, "the system's own limit serves as well: drop ours"
