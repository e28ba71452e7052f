"""A Spark session for one audit: local unless told otherwise, quiet, and off the network.

What has to be said before the JVM starts is said here; under `spark-submit` the session is there
already, and only what can be changed later is set.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DRIVER_MEMORY = "2g"
_QUIET = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
"""
"""A task that fails is told by the audit itself, in its own words."""
_SHORT_LIVED = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkMissing(Exception):
    """pyspark or Java is not installed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is missing: `make setup-audit` installs what audits need")


def require_spark() -> None:
    """Raises SparkMissing."""
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        raise SparkMissing("pyspark") from None
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        raise SparkMissing("a Java runtime")


@contextlib.contextmanager
def spark_session(
    master: str = "local[*]", *, progress: bool = False, is_small: bool = False
) -> Iterator[Any]:
    """The session; it and its temporary folder end with the block. `is_small`: the JVM will not
    live long enough for its second compiler to be worth it. Raises SparkMissing.
    """
    require_spark()
    from pyspark.sql import SparkSession

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="isthmus-audit-"))
    try:
        quiet = folder / "log4j2.properties"
        quiet.write_text(_QUIET)
        told = {
            "spark.app.name": "isthmus audit",
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}"
            f" -Djava.io.tmpdir={folder}{_SHORT_LIVED if is_small else ''}",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": str(progress).lower(),
            "spark.sql.session.timeZone": "UTC",
            # Sums wrap, and a place beyond a column's end is no error of the whole night.
            "spark.sql.ansi.enabled": "false",
            "spark.sql.shuffle.partitions": "64",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
            "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        }
        if master.startswith("local"):
            told |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        builder = SparkSession.builder.master(master)
        for name, value in told.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
