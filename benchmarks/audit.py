"""Cost of an audit of many messages, beside DuckDB answering the same over the same files.

    python -m benchmarks.audit [--messages N] [--sites S] [--times T] [--folder DIR] [--plain]

Makes ledgers of full batches, audits them by both levels (`isthmus audit` as a process of its own,
so that the start of Spark counts; driver at 2 GiB), and asks two others the same: Spark itself,
plainly (a union of what was sent and what came, grouped by identity: what the machine of the hour
gives to whom knows nothing of batches), and DuckDB, if it is installed (`pip install duckdb`), with
as much memory and as many threads. Prints the median of T runs, the
fastest and the slowest, messages and rows a second (rows: sent and delivered; a site's own copies
are not counted), and the most memory of the process tree. `--plain`: identities as they come from
publishers, which cannot be compressed: 150 bytes a message and site; else a tenth of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from spark_audit.generate.bulk import generate_bulk
from spark_audit.period import Period
from spark_audit.session import DRIVER_MEMORY

DAY = date(2026, 3, 1)
Once = Callable[[], tuple[float, int]]
"""Seconds and bytes of one run."""
MEMORY = "2GB"
_PAGE = os.sysconf("SC_PAGE_SIZE")

_BY_SUMS = """
    WITH sent AS (
        SELECT origin, incarnation, exchange, lane, destinations, sequence,
            sum(delivered_count) AS n, sum(identity_sum_1) AS a, sum(identity_sum_2) AS b
        FROM read_parquet('{folder}/sites/*/ledger/date=*/packed-*.parquet')
        WHERE event = 'batch' GROUP BY ALL
    ), came AS (
        SELECT origin, incarnation, exchange, lane, destinations, sequence, site,
            sum(delivered_count) AS n, sum(identity_sum_1) AS a, sum(identity_sum_2) AS b
        FROM read_parquet('{folder}/sites/*/ledger/date=*/delivered-*.parquet')
        WHERE event = 'batch' GROUP BY ALL
    ), both_of_them AS (
        SELECT sent.sequence, count(came.site) FILTER (sent.n = came.n AND sent.a = came.a
            AND sent.b = came.b) AS right_sites
        FROM sent LEFT JOIN came USING (origin, incarnation, exchange, lane, destinations, sequence)
        GROUP BY sent.origin, sent.incarnation, sent.exchange, sent.lane, sent.destinations,
            sent.sequence
    )
    SELECT count(*) FROM both_of_them WHERE right_sites <> {sites}
"""
_BY_MESSAGE = """
    WITH packed AS (
        SELECT exchange, identities, unnest(range(count)) AS i
        FROM read_parquet('{folder}/sites/*/ledger/date=*/packed-*.parquet')
        WHERE event = 'batch'
    ), delivered AS (
        SELECT exchange, identities, unnest(range(count)) AS i
        FROM read_parquet('{folder}/sites/*/ledger/date=*/delivered-*.parquet')
        WHERE event = 'batch' AND len(path) > 1
    ), everything AS (
        SELECT exchange, identities[16 * i + 1 : 16 * i + 16] AS identity, 1 AS sent, 0 AS came
        FROM packed
        UNION ALL
        SELECT exchange, identities[16 * i + 1 : 16 * i + 16], 0, 1 FROM delivered
    )
    SELECT count(*) FROM (
        SELECT 1 FROM everything GROUP BY exchange, identity
        HAVING sum(sent) <> 1 OR sum(came) <> {sites} - 1
    )
"""

_PLAINLY = """
from pyspark.sql import functions as F
from spark_audit.session import spark_session
with spark_session(memory="{memory}") as spark:
    def identities(stage, where, sent):
        files = spark.read.parquet("{folder}/sites/*/ledger/date=*/" + stage + "-*.parquet")
        one = "substring(identities, 16 * i + 1, 16)"
        each = f"explode(transform(sequence(0, count - 1), i -> {{one}})) AS identity"
        rows = files.where("event = 'batch' AND count > 0").where(where)
        return rows.selectExpr("exchange", each, f"{{sent}} AS sent")
    both = identities("packed", "true", 1).unionByName(identities("delivered", "size(path) > 1", 0))
    sums = F.sum("sent").alias("sent"), F.count("*").alias("rows")
    by_identity = both.groupBy("exchange", "identity").agg(*sums)
    wrong = by_identity.where("sent <> 1 OR rows <> {sites}").count()
raise SystemExit(wrong != 0)
"""


def memory_of(pid: int) -> int:
    """Resident bytes of a process and all that descend from it."""
    try:
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        tasks = [task.read_text().split() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return 0
    return own + sum(memory_of(int(child)) for children in tasks for child in children)


def run(command: list[str], expected: int) -> tuple[float, int]:
    """Seconds and the most memory of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            most[0] = max(most[0], memory_of(process.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    status = process.wait()
    over.set()
    watching.join()
    if status != expected:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return time.perf_counter() - began, most[0]


def audit(folder: Path, level: str) -> Once:
    return lambda: run(
        [
            *(sys.executable, "-m", "isthmus", "audit", str(folder / "mesh.yaml")),
            *("--ledger", str(folder / "sites"), "--date", DAY.isoformat()),
            *("--level", level, "--out", str(folder / "audit")),
        ],
        0,
    )


def plain_spark(folder: Path, sites: int) -> Once:
    program = _PLAINLY.format(folder=folder, sites=sites, memory=DRIVER_MEMORY)
    return lambda: run([sys.executable, "-c", program], 0)


def duckdb(folder: Path, sites: int, question: str) -> Once:
    asked = question.format(folder=folder, sites=sites)
    program = (
        "import duckdb, sys\n"
        f"db = duckdb.connect(config={{'memory_limit': '{MEMORY}', 'threads': {os.cpu_count()},"
        f" 'temp_directory': '{folder}/duckdb'}})\n"
        f"sys.exit(db.sql('''{asked}''').fetchall()[0][0] != 0)"
    )
    return lambda: run([sys.executable, "-c", program], 0)


def measured(what: str, messages: int, sites: int, times: int, once: Once) -> None:
    """Prints a line, or why there is none."""
    taken, most = list[float](), 0
    for _ in range(times):
        try:
            seconds, memory = once()
        except SystemExit as error:
            print(f"{what:22} did not end well: {error}")
            return
        taken.append(seconds)
        most = max(most, memory)
    median = statistics.median(taken)
    print(
        f"{what:22} {median:7.1f} s ({min(taken):.1f} to {max(taken):.1f})"
        f"  {messages / median / 1e6:8.2f} M messages/s  {messages * sites / median / 1e6:8.2f} M"
        f" rows/s  {most / 2**30:.1f} GiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="kept, and used again if it is there")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "made"
        sites = options.sites
        if not folder.exists():
            period = Period.of_day(DAY)
            generate_bulk(folder, sites, options.messages, period, small=not options.plain)
        size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        print(f"{options.messages / 1e6:g} million messages of {sites} sites: {size / 1e9:.2f} GB")
        ways: dict[str, Once] = {
            "fingerprint": audit(folder, "fingerprint"),
            "exact": audit(folder, "exact"),
            "Spark, plainly": plain_spark(folder, sites),
        }
        try:
            import duckdb as _  # noqa: F401
        except ModuleNotFoundError:
            print("DuckDB is not installed: pip install duckdb")
        else:
            ways["DuckDB, sums"] = duckdb(folder, sites, _BY_SUMS)
            ways["DuckDB, each identity"] = duckdb(folder, sites, _BY_MESSAGE)
        for what, once in ways.items():
            measured(what, options.messages, sites, options.times, once)


if __name__ == "__main__":
    main()
