"""Cassandra's driver without numpy; in a process of its own, since modules stay imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

DRIVER_FIRST = """
import sys
from dedup.journal.lean_driver import import_driver
import_driver()
import dedup.journal.cassandra_session
assert "numpy" not in sys.modules
import numpy
assert numpy.arange(3).sum() == 3
"""
NUMPY_FIRST = """
import numpy
from dedup.journal.lean_driver import import_driver
import_driver()
import dedup.journal.cassandra_session, sys
assert sys.modules["numpy"] is numpy
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [DRIVER_FIRST, NUMPY_FIRST])
def test_the_driver_takes_no_numpy_and_nobody_else_loses_it(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)
