"""Spark session for one audit: local by default, quiet, and off the network.

Settings that Java needs before the start are made here; under `spark-submit` the session exists
already, and only settings that can change later are made. A progress line shows a terminal the
running step.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
"""Logging settings: silent about failed tasks, which the audit itself reports."""
LOCAL = "local[*]"
_SETTINGS = {
    "spark.app.name": "isthmus audit",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Sums wrap, and an index beyond a column's end must not end the night.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    # Descriptions of plans, which nobody reads, cost as much as the plans.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.sql.maxPlanStringLength": "0",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}
_SHORT_LIVED = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkMissing(Exception):
    """A part of Spark, Java, or the report's template library is not installed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is missing: `make setup-audit` installs what audits need")


class SparkEnded(Exception):
    """Java did not start, or ended during the audit."""

    def __init__(self, last_output: str) -> None:
        super().__init__(f"Spark's Java process ended; the last it said: {last_output}")


class SparkFailed(Exception):
    """A Spark job failed: an unreadable folder, a worker without memory."""

    def __init__(self, message: str) -> None:
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")]
        super().__init__("\n".join(["Spark could not do it:", *lines[:2], *causes[-1:]]))


def require_spark() -> None:
    """Raise SparkMissing unless pyspark, Java and jinja2 are installed."""
    for module in ("pyspark", "jinja2"):
        if importlib.util.find_spec(module) is None:
            raise SparkMissing(module)
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        raise SparkMissing("a Java runtime")


class _Started(NamedTuple):
    session: SparkSession
    java_log: Path
    """Log file of the Java process."""


class _Kept:
    """Session shared within `spark_kept`, once started."""

    def __init__(self) -> None:
        self.ends = contextlib.ExitStack()
        self.started: _Started | None = None


_kept: _Kept | None = None


@contextlib.contextmanager
def spark_kept() -> Iterator[None]:
    """Start Spark once within the block, for every `spark_session` in it, and end it with the
    block: later callers find it warm. Master and memory are the first caller's.
    """
    global _kept
    _kept = _Kept()
    try:
        with _kept.ends:
            yield
    finally:
        _kept = None


@contextlib.contextmanager
def spark_session(
    master: str = "", *, is_small: bool = False, memory: str = DRIVER_MEMORY
) -> Iterator[SparkSession]:
    """Yield a session, which ends with the block together with its temporary folder, except within
    `spark_kept`. Without a `master`: the one of `spark-submit`, or else this machine. `is_small`:
    True if the JVM will not live long enough for its second compiler to pay. Raises SparkMissing,
    SparkEnded, SparkFailed.
    """
    if _kept is None:
        with (
            _start(master, memory, is_small=is_small) as started,
            _failures_translated(started.java_log),
        ):
            yield started.session
        return
    if _kept.started is None:
        _kept.started = _kept.ends.enter_context(_start(master, memory, is_small=is_small))
    with _failures_translated(_kept.started.java_log):
        yield _kept.started.session


@contextlib.contextmanager
def _start(master: str, memory: str, *, is_small: bool) -> Iterator[_Started]:
    require_spark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    folder = Path(tempfile.mkdtemp(prefix="isthmus-audit-"))
    java_log = folder / "spark.log"
    try:
        conf = SparkConf()
        for name, value in _SETTINGS.items():
            conf.set(name, value)
        if master or not is_submitted:
            master = master or LOCAL
            conf.setMaster(master)
        if not is_submitted:
            for name, value in _before_java(folder, memory, is_small=is_small).items():
                conf.set(name, value)
        if master.startswith("local"):
            conf.set("spark.local.dir", str(folder))
            conf.set("spark.driver.bindAddress", "127.0.0.1")
            conf.set("spark.driver.host", "127.0.0.1")
            # Java asks for the machine's name otherwise, which not every network resolves.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        with _failures_translated(java_log):
            context = SparkContext(conf=conf, gateway=_gateway(conf, java_log))
            context.setLogLevel("ERROR")
            session = SparkSession(context)
        try:
            yield _Started(session, java_log)
        finally:
            with contextlib.suppress(ConnectionError):  # Java is gone already
                session.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_on_one_machine(spark: SparkSession) -> bool:
    """True if driver and executors are one process, so that no executor is lost alone."""
    return str(spark.sparkContext.master).startswith("local")


def _before_java(folder: Path, memory: str, *, is_small: bool) -> dict[str, str]:
    """Return the settings that Java needs at its start."""
    quiet = folder / "log4j2.properties"
    quiet.write_text(_QUIET)
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}"
        f" -Djava.io.tmpdir={folder}{_SHORT_LIVED if is_small else ''}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


def _gateway(conf: Any, java_log: Path) -> Any:
    """Start Java with its output going to a file, or return None if Java runs already."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    with java_log.open("wb") as file:
        return launch_gateway(conf, {"stdout": file, "stderr": file})


@contextlib.contextmanager
def _failures_translated(java_log: Path) -> Iterator[None]:
    """Translate errors of Spark, with Java's last output if Java is gone. Raises SparkEnded,
    SparkFailed.
    """
    from py4j.protocol import Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException, PySparkRuntimeError

    try:
        yield
    except (Py4JNetworkError, ConnectionError, PySparkRuntimeError) as error:
        last = java_log.read_text(errors="replace")[-2000:].strip() if java_log.exists() else ""
        raise SparkEnded(last or str(error)) from error
    except (PySparkException, Py4JJavaError) as error:
        raise SparkFailed(str(error)) from error


_EVERY_S = 0.5


@dataclass(slots=True)
class ProgressLine:
    """Progress display, called with the name of each step. As a context manager it keeps the line
    up to date; silent if `stream` is no terminal.
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    spark: SparkSession | None = None
    """Session, or None before the start."""
    _step: str = field(default="", init=False)
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _display_path: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self, step: str) -> None:
        with self._display_path:
            if self._thread is not None and self._step:
                self._line(f"{self._step}: done\n")
            self._step = step
            self._line(f"{step} ...")

    def __enter__(self) -> ProgressLine:
        if self.stream.isatty():
            self._thread = threading.Thread(target=self._keep_up, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._line("")

    def _keep_up(self) -> None:
        while not self._over.wait(_EVERY_S):
            parts = tasks_of(self.spark)
            with self._display_path:
                if parts:
                    self._line(f"{self._step} ... {parts[0]} of {parts[1]} parts")

    def _line(self, text: str) -> None:
        if self._thread is not None:
            self.stream.write(f"\r\x1b[K{text}")
            self.stream.flush()


def tasks_of(spark: SparkSession) -> tuple[int, int] | None:
    """Return (done, all) tasks of the running stages, or None if none runs or Spark is ending."""
    if spark is None:
        return None
    with contextlib.suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
    return None
