"""`isthmus audit` for `spark-submit`:

spark-submit [--master URL] [--conf ...] .../isthmus/spark_submit.py FILE [options of isthmus audit]

Spark's own settings are spark-submit's then, the master as well. Nothing of isthmus runs on the
workers: they need no Python. Where this file stands: `python -m isthmus.spark_submit`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run it, or say where it is."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ and len(sys.argv) == 1:
        print(Path(__file__).resolve())
        return
    # spark-submit puts this folder first, whose modules are not to be taken for others.
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    from isthmus.cli import main as isthmus

    sys.argv[:] = ["isthmus", "audit", *sys.argv[1:]]
    isthmus()


if __name__ == "__main__":
    main()
