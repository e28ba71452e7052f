"""An audit as a driver of its own, which says on standard output where it is.

python -m tests.spark_audit.cluster_job MASTER MADE LEVEL WORK      MADE: of `generate_ledgers`
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

from federation.mesh_file import load_mesh
from spark_audit.job import Audit
from spark_audit.level import Level
from spark_audit.period import Period
from spark_audit.session import spark_session


def main(master: str, made: str, level: str, work: str) -> None:
    mesh = load_mesh(Path(made) / "mesh.yaml")
    period = Period.of_day(date(2026, 3, 1))
    with spark_session(master, memory="512m") as spark:
        job = Audit(
            spark,
            mesh,
            str(Path(made) / "sites"),
            period,
            lambda step: print(step, flush=True),
            level=Level(level),
            work=work,
        )
        print(json.dumps(job.run().as_json()), flush=True)
        job.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
