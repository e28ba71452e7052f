"""Read ledger files with Spark, typed as in `relay.ledger.columns`.

An unreadable file must neither end the night's run nor go unnoticed: reading is strict, and
`without_bad_files` leaves out the file that Spark names, notes it, and runs the job again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from relay.ledger.columns import parquet_schema
from spark_audit.frames import no_rows
from spark_audit.ledgers.files import LedgerPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = TypeVar("Answer")
_NAMED = re.compile(r"(?:Encountered error while reading file|reading file:?)\s+(.+?\.parquet)")
RAW_URI = "_metadata.file_path"
"""SQL of a row's file as Spark has it."""
FILE_URI = "url_decode(replace(uri, '+', '%2B'))"
"""SQL that decodes `uri` to `LedgerPath.uri`: Spark encodes blanks and the like."""
MOST_BAD_FILES = 50
"""Most unreadable files, found one by one, before the cause must be another."""


class TooManyBadFiles(Exception):
    """Nearly no file can be read."""


@dataclass(slots=True)
class LedgerSource:
    """Files of one audit. `bad` grows while jobs run over them."""

    spark: SparkSession
    files: list[LedgerPath]
    bad: dict[str, str] = field(default_factory=dict)
    """URI -> reason why the file cannot be read."""
    left_out: set[str] = field(default_factory=set)
    """URIs of files whose rows other files repeat."""
    overlap: bool = False
    """True if two files share some rows: each row is counted once."""

    def only(self, uris: Collection[str]) -> LedgerSource:
        """Return a source of these files, which shares the notes of bad files."""
        files = [file for file in self.files if file.uri in uris]
        return LedgerSource(self.spark, files, self.bad, self.left_out, self.overlap)

    def rows(
        self,
        stages: Sequence[str] = (),
        *,
        only: Collection[str] | None = None,
        lenient: bool = False,
    ) -> DataFrame:
        """Return the rows of these stages (default: all), `only` of these files."""
        from pyspark.sql import functions as F  # noqa: N812

        paths = [
            file.uri
            for file in self.files
            if file.uri not in self.bad
            and file.uri not in self.left_out
            and (only is None or file.uri in only)
            and (not stages or not file.stage or file.stage in stages)
        ]
        reader = self.spark.read.schema(spark_schema())
        reader = reader.option("ignoreCorruptFiles", str(lenient).lower())
        if paths:
            rows = reader.parquet(*paths)
        else:
            where = "named_struct('file_path', '') AS _metadata"
            rows = no_rows(self.spark, spark_schema(), where)
        if stages:
            rows = rows.where(F.col("stage").isin(*stages))
        if self.overlap:
            rows = rows.dropDuplicates(["site", "state", "stage", "number"])
        return rows

    def without_bad_files(self, job: Callable[[], Answer]) -> Answer:
        """Return the job's result over the readable files; the job builds its DataFrames anew at
        each attempt. Raises TooManyBadFiles, and Spark's errors of other causes.
        """
        while True:
            try:
                return job()
            except Exception as error:
                named = _NAMED.search(str(error))
                uri = named and self._known(named[1])
                if not uri:
                    raise
                self.bad[uri] = "cannot be read: it is corrupt"
                if len(self.bad) > MOST_BAD_FILES:
                    raise TooManyBadFiles(f"{len(self.bad)} files cannot be read") from error

    def _known(self, uri: str) -> str | None:
        tails = {one.split(":", 1)[-1].lstrip("/") for one in (uri, unquote(uri))}
        for file in self.files:
            if file.uri.split(":", 1)[-1].lstrip("/") in tails and file.uri not in self.bad:
                return file.uri
        return None


def spark_schema() -> Any:
    """Return `parquet_schema` in Spark's types."""
    import pyarrow as pa
    from pyspark.sql import types as T  # noqa: N812

    def of(kind: Any) -> Any:
        if pa.types.is_list(kind):
            return T.ArrayType(of(kind.value_type))
        if pa.types.is_timestamp(kind):
            return T.TimestampType()
        return {
            pa.string(): T.StringType(),
            pa.binary(): T.BinaryType(),
            pa.int32(): T.IntegerType(),
            pa.int64(): T.LongType(),
        }[kind]

    return T.StructType([T.StructField(one.name, of(one.type)) for one in parquet_schema()])
