"""Import of Cassandra's driver without numpy, which takes 10 MB of a node that never uses numpy."""

from __future__ import annotations

import importlib
import sys

_ASKS_FOR_NUMPY = "cassandra.cython_deps"
"""Module of the driver that looks once whether numpy is installed, for results as arrays."""


def import_driver() -> None:
    """Import the driver's look for numpy so that numpy is not found; whoever else imports numpy
    gets numpy. Raises ImportError where the driver is not installed.
    """
    if "numpy" in sys.modules:
        importlib.import_module(_ASKS_FOR_NUMPY)
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]
    try:
        importlib.import_module(_ASKS_FOR_NUMPY)
    finally:
        del sys.modules["numpy"]
