"""Read receipts that publishers and consumers write themselves, in any of three forms.

Parquet, JSON Lines or CSV (with a heading), a file or a folder, on any file system that Spark
reads. Columns or keys: `message_id`, `site`, `time`, `role` (published or consumed), and optionally
`exchange`, `confirmed`, `queue`, `redelivered`; others are ignored. A malformed line ends the audit
with its place: a misread witness is worse than none.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MUST = ("message_id", "site", "time", "role")
MAY = ("exchange", "confirmed", "queue", "redelivered")
_KEYS = (*MUST, *MAY)
_KINDS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
_KINDS |= {".csv": "csv"}
_PACKED = (".gz", ".bz2", ".zst")


class BadReceipts(Exception):
    """Receipts are unreadable or malformed. `line` counts from 1; None without a line."""

    def __init__(self, file: str, line: int | None, what: str) -> None:
        super().__init__(f"{file}{'' if line is None else f', line {line}'}: {what}")
        self.file = file
        self.line = line
        self.what = what


def read_receipts(spark: SparkSession, path: str, sites: dict[str, str]) -> DataFrame:
    """Return one row per receipt: message_id, at (cluster ID), at_ms, is_published, is_confirmed,
    exchange and queue (null if absent), is_redelivered. `sites`: name -> cluster ID of every site
    that may have receipts. Raises BadReceipts.
    """
    files = _files(spark, path)
    lines = None
    for kind in ("parquet", "json", "csv"):
        of_kind = [file for file, is_kind in files if is_kind == kind]
        if not of_kind:
            continue
        read = {"parquet": _parquet, "json": _json, "csv": _csv}[kind](spark, of_kind)
        lines = read if lines is None else lines.unionByName(read)
    assert lines is not None  # `_files` finds one at least
    judged = _judged(lines, sites).cache()
    try:
        bad = judged.where("wrong IS NOT NULL").select("file", "line", "wrong").head(1)
    except Exception as error:
        raise BadReceipts(path, None, f"cannot be read: {_first_line(error)}") from error
    if bad:
        file, line, wrong = bad[0]
        raise BadReceipts(_display_path(file), _number(spark, file, line), wrong)
    return judged.drop("wrong", "file", "line")


def _judged(lines: DataFrame, sites: dict[str, str]) -> DataFrame:
    """Parse texts to values; `wrong` is the reason if a line is malformed."""
    from pyspark.sql import functions as F  # noqa: N812

    cluster = F.create_map(*[F.lit(part) for pair in sites.items() for part in pair])
    time = """
        CASE WHEN time RLIKE '^[0-9]{12,14}$' THEN CAST(time AS BIGINT)
             WHEN time RLIKE '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}'
                 THEN unix_millis(CAST(time AS TIMESTAMP)) END
    """
    return (
        lines.withColumn("at", cluster[F.col("site")])
        .withColumn("at_ms", F.expr(time))
        # Publishers without the column write receipts of confirmed messages only.
        .withColumn("is_confirmed", F.expr(_truth("confirmed", "true")))
        .withColumn("is_redelivered", F.expr(_truth("redelivered", "false")))
        .selectExpr(
            *("message_id", "at", "at_ms", "is_confirmed", "is_redelivered", "file", "line"),
            "role = 'published' AS is_published",
            "nullif(exchange, '') AS exchange",
            "nullif(queue, '') AS queue",
            """CASE
                WHEN broken IS NOT NULL THEN broken
                WHEN coalesce(message_id, '') = '' THEN 'it has no message_id'
                WHEN coalesce(site, '') = '' THEN 'it has no site'
                WHEN at IS NULL THEN concat('its site is ', site, ', which the mesh does not have')
                WHEN coalesce(role, '') NOT IN ('published', 'consumed') THEN
                    concat('its role is ', coalesce(role, 'not said'),
                        ', not published or consumed')
                WHEN at_ms IS NULL THEN
                    concat('its time is ', coalesce(time, 'not said'),
                        ', not like 2026-11-22T08:00:00.123Z')
                WHEN is_confirmed IS NULL THEN
                    concat('confirmed is ', confirmed, ', not true or false')
                WHEN is_redelivered IS NULL THEN
                    concat('redelivered is ', redelivered, ', not true or false')
            END AS wrong""",
        )
    )


def _truth(column: str, default: str) -> str:
    text = f"lower(trim(coalesce({column}, '')))"
    return (
        f"CASE WHEN {text} IN ('true', '1') THEN true WHEN {text} IN ('false', '0') THEN false"
        f" WHEN {text} = '' THEN {default} END"
    )


# -- the three forms: rows of texts, each with its file and the unparsed line ---------------------


def _json(spark: SparkSession, files: list[str]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    keys = ", ".join(f"{key} STRING" for key in (*_KEYS, "_broken"))
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_broken')"
    return (
        _lines(spark, files)
        .withColumn("said", F.expr(f"from_json(line, '{keys}', {options})"))
        .selectExpr(
            *(f"said.{key} AS {key}" for key in _KEYS),
            "CASE WHEN said IS NULL OR said._broken IS NOT NULL OR NOT trim(line) LIKE '{%'"
            " THEN 'it is not a JSON object' END AS broken",
            "file",
            "line",
        )
    )


def _csv(spark: SparkSession, files: list[str]) -> DataFrame:
    """Read each heading's files together, since columns may differ in order."""
    from pyspark.sql import functions as F  # noqa: N812

    by_heading: dict[str, list[str]] = {}
    for file in files:
        by_heading.setdefault(_heading(spark, file), []).append(file)
    read = None
    for heading, of_heading in by_heading.items():
        names = [name.strip() for name in next(csv.reader([heading.lstrip("\ufeff")]), [])]
        if lacks := [key for key in MUST if key not in names]:
            raise BadReceipts(
                _display_path(of_heading[0]), 1, f"its heading lacks {', '.join(lacks)}"
            )
        columns = ", ".join(f"c{number} STRING" for number in range(len(names)))
        options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_broken')"
        values = [
            f"said.c{names.index(key)} AS {key}"
            if key in names
            else f"CAST(NULL AS STRING) AS {key}"
            for key in _KEYS
        ]
        rows = (
            _lines(spark, of_heading)
            .where(F.col("line") != F.lit(heading))
            .withColumn("said", F.expr(f"from_csv(line, '{columns}, _broken STRING', {options})"))
            .selectExpr(
                *values,
                f"CASE WHEN said IS NULL OR said._broken IS NOT NULL"
                f" THEN 'it does not have the {len(names)} columns of its heading' END AS broken",
                "file",
                "line",
            )
        )
        read = rows if read is None else read.unionByName(rows)
    return read


def _parquet(spark: SparkSession, files: list[str]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    try:
        rows = spark.read.option("mergeSchema", "true").parquet(*files)
    except Exception as error:
        raise BadReceipts(
            _display_path(files[0]), None, f"cannot be read: {_first_line(error)}"
        ) from error
    kinds = dict(rows.dtypes)
    if lacks := [key for key in MUST if key not in kinds]:
        raise BadReceipts(_display_path(files[0]), None, f"it lacks the columns {', '.join(lacks)}")
    texts = [
        F.col(key).cast("string").alias(key)
        if key in kinds
        else F.lit(None).cast("string").alias(key)
        for key in _KEYS
    ]
    if kinds["time"].startswith("timestamp"):
        time = F.expr("CAST(unix_millis(CAST(time AS TIMESTAMP)) AS STRING)").alias("time")
        texts[_KEYS.index("time")] = time
    nothing = F.lit(None).cast("string")
    return rows.select(
        *texts,
        nothing.alias("broken"),
        F.col("_metadata.file_path").alias("file"),
        nothing.alias("line"),
    )


def _lines(spark: SparkSession, files: list[str]) -> DataFrame:
    return (
        spark.read.text(files)
        .selectExpr("value AS line", "_metadata.file_path AS file")
        .where("trim(line) <> ''")
    )


# -- files ---------------------------------------------------------------------------------------


def _files(spark: SparkSession, path: str) -> list[tuple[str, str]]:
    """Return (URI, kind) of all files. Raises BadReceipts."""
    jvm = spark.sparkContext._jvm
    top = jvm.org.apache.hadoop.fs.Path(path)
    found = []
    try:
        system = top.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        for status in list(system.globStatus(top) or ()):
            if status.isFile():
                found.append(status.getPath().toString())
                continue
            inside = system.listFiles(status.getPath(), True)
            while inside.hasNext():
                found.append(inside.next().getPath().toString())
    except Exception as error:
        raise BadReceipts(path, None, f"cannot be read: {_first_line(error)}") from error
    files = []
    for file in sorted(found):
        name = file.rsplit("/", 1)[-1]
        if not name.startswith((".", "_")):
            kind = _kind(name)
            if kind is None:
                raise BadReceipts(
                    _display_path(file), None, f"its name ends in none of {', '.join(_KINDS)}"
                )
            files.append((file, kind))
    if not files:
        raise BadReceipts(path, None, "there are no receipts")
    return files


def _kind(name: str) -> str | None:
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)


def _heading(spark: SparkSession, file: str) -> str:
    """Return a CSV file's first line."""
    first = spark.read.text(file).head(1)
    return str(first[0][0]) if first else ""


def _number(spark: SparkSession, file: str, line: str | None) -> int | None:
    """Return the number of the first such line in the file."""
    if line is None:
        return None
    numbered = spark.sparkContext.textFile(file).zipWithIndex()
    found: int = numbered.filter(lambda one: one[0] == line).first()[1] + 1
    return found


def _display_path(uri: str) -> str:
    """Return the path as people write it."""
    return uri.removeprefix("file://").removeprefix("file:")


def _first_line(error: Exception) -> str:
    lines: Iterable[str] = str(error).strip().splitlines() or [type(error).__name__]
    return next(iter(lines))
