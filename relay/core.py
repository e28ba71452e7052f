"""Choice between the native core and its twins in Python.

The native core (`core/`, in Rust) reads, packs, opens and stamps messages a batch at a time,
without a Python object a message. Its twins do the same in Python, with the same bytes as result:
the loops of `FrameReader` and `FlowPacker`, `OpenedEntries` and `DeliveryStamp`. `make setup`
builds the core where a Rust compiler is there; a node without the core is as correct.

Environment variable `ISTHMUS_CORE`: `auto` (default: native if built), `native` (required), `pure`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

VARIABLE = "ISTHMUS_CORE"
MODULE = "isthmus_core"


class CoreUnusable(Exception):
    """The environment asks for a core that is not there. The message has the mend."""


def load(wanted: str) -> Any:
    """Return the native module, or None for the twins. Raises CoreUnusable."""
    if wanted == "pure":
        return None
    if wanted not in ("auto", "native"):
        raise CoreUnusable(f"{VARIABLE}={wanted}: there are auto, native and pure")
    try:
        return import_module(MODULE)
    except ImportError as error:
        if wanted == "auto":
            return None
        raise CoreUnusable(
            f"{VARIABLE}=native, and the native core cannot be loaded ({error}): "
            "`make setup` builds it where a Rust compiler is installed"
        ) from error


def _load_or_exit() -> Any:
    try:
        return load(os.environ.get(VARIABLE, "auto"))
    except CoreUnusable as error:
        # Nothing is running yet: every module that imports this one needs the answer.
        print(f"isthmus: {error}", file=sys.stderr)
        raise SystemExit(2) from None


native: Any = _load_or_exit()
"""The native module, or None where the twins are used."""


def name() -> str:
    """Name of the core in use: `native` or `pure`."""
    return "pure" if native is None else "native"
