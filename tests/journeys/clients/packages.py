"""Python clients of other protocols, which `make client-tools` puts beside .venv."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[3] / ".tools" / "clients"


def client_package(name: str) -> Any:
    """Import a module of such a package."""
    # Only for the time being: other tests look at what is installed.
    sys.path.append(str(TOOLS))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AssertionError(f"{name} is missing: make client-tools") from error
    finally:
        sys.path.remove(str(TOOLS))
