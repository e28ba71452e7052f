"""Faults of every kind among so many messages: does the audit name each, and nothing else?

    python -m benchmarks.planted [--messages N] [--sites S] [--seed K] [--level L] [--folder DIR]

Makes the ledgers of a day (`isthmus audit generate --fault all`; 15 s and 70 MB of memory a million
messages), or takes those that lie in DIR already, audits them by `isthmus audit`, and compares what
it wrote with what was planted. Prints what differs, how long it took and the most memory; exit 1 if
anything differs. `make test` does the same with a million; this is for what does not fit there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.audit import DAY, run
from spark_audit.generate.planting import PlantedFinding
from spark_audit.judge.verdicts import FINDINGS

SHOWN = 20
FOUND = 1
"""Exit status of an audit that found something."""


def found_in(out: Path) -> Counter[PlantedFinding]:
    import pyarrow.parquet as pq

    columns = ["kind", "identity", "origin", "destination"]
    rows = pq.read_table(out / "findings.parquet", columns=columns).to_pylist()
    return Counter(PlantedFinding(**{**row, "identity": row["identity"] or ""}) for row in rows)


def differences(folder: Path, out: Path) -> list[str]:
    """Describe the differences between planted faults and an audit's findings."""
    planted = json.loads((folder / "planted.json").read_text())
    report = json.loads((out / "report.json").read_text())
    wanted = Counter(PlantedFinding(**one) for one in planted["findings"])
    found = found_in(out)
    told = [f"not found: {one}" for one in sorted((wanted - found).elements())]
    told += [f"not planted: {one}" for one in sorted((found - wanted).elements())]
    explained = {
        verdict: count
        for verdict, count in report["totals"].items()
        if verdict not in (*FINDINGS, "delivered")
    }
    besides = [f"not proven: {why}" for why in report["why_not_proven"]]
    if explained != planted["explained"]:
        besides.append(f"explained: {explained}, planted: {planted['explained']}")
    return [*besides, *told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", default="exact", choices=("exact", "fingerprint"))
    parser.add_argument("--folder", type=Path, help="kept, and used again if it is there")
    options = parser.parse_args()
    isthmus = [sys.executable, "-m", "isthmus", "audit"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "made"
        if not folder.exists():
            size = ("--sites", str(options.sites), "--messages", str(options.messages))
            made = [*isthmus, "generate", str(folder), *size, "--seed", str(options.seed)]
            subprocess.run([*made, "--date", DAY.isoformat(), "--fault", "all"], check=True)
        out = folder / f"audit-{options.level}"
        given = ("--ledger", str(folder / "sites"), "--date", DAY.isoformat())
        command = [*isthmus, str(folder / "mesh.yaml"), *given, "--level", options.level]
        seconds, memory = run([*command, "--out", str(out)], FOUND)
        told = differences(folder, out)
        found = Counter(one.kind for one in found_in(out).elements())
    for line in told[:SHOWN]:
        print(line)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
    print(f"found: {counts}; {len(told)} differences; {seconds:.0f} s, {memory / 2**30:.1f} GiB")
    sys.exit(bool(told))


if __name__ == "__main__":
    main()
