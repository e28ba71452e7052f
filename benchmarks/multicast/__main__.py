"""`python -m benchmarks.multicast`: the row `multicast` alone, as `make bench ROW=multicast`."""

from __future__ import annotations

import sys

from benchmarks.compare.__main__ import main

if __name__ == "__main__":
    sys.argv.append("multicast")
    sys.exit(main())
