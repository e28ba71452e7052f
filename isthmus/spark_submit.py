"""Program of `isthmus audit` for `spark-submit`.

    spark-submit [--master URL] [--conf ...] .../isthmus/spark_submit.py FILE [audit's options]

Spark's settings and master are spark-submit's then. Workers run no code of isthmus and need no
Python. `python -m isthmus.spark_submit` prints the path of this file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the audit, or print this file's path."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ and len(sys.argv) == 1:
        print(Path(__file__).resolve())
        return
    # spark-submit puts this folder first; its modules must not shadow others.
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    from isthmus.command_line import main as isthmus

    sys.argv[:] = ["isthmus", "audit", *sys.argv[1:]]
    isthmus()


if __name__ == "__main__":
    main()
