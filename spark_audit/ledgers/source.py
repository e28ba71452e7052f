"""Reads ledger files with Spark. Column types: those of `relay.ledger.columns`, in this file only.

A file that cannot be read must neither end the night's run nor be passed over in silence: reading
is strict, and whoever runs a job over the files takes the one that Spark names out, notes it, and
runs the job again (`without_bad_files`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

from relay.ledger.columns import parquet_schema
from spark_audit.engine.frames import no_rows
from spark_audit.ledgers.files import LedgerPath

Answer = TypeVar("Answer")
_NAMED = re.compile(r"(?:Encountered error while reading file|reading file:?)\s+(.+?\.parquet)")
RAW_URI = "_metadata.file_path"
"""A row's file as Spark tells it."""
FILE_URI = "url_decode(replace(uri, '+', '%2B'))"
"""Made of that, `uri`, as `LedgerPath.uri` has it: Spark encodes blanks and the like."""
MOST_BAD_FILES = 50
"""More than these, one found after the other, and something else is wrong."""


class TooManyBadFiles(Exception):
    """Nearly nothing can be read."""


@dataclass(slots=True)
class LedgerSource:
    """The files of one audit. `bad` grows while jobs run over them."""

    spark: Any
    files: list[LedgerPath]
    bad: dict[str, str] = field(default_factory=dict)
    """URI -> why it cannot be read."""
    left_out: set[str] = field(default_factory=set)
    """URIs of files whose rows stand in others."""
    overlap: bool = False
    """Some rows stand in two files in part: each is counted once."""

    def only(self, uris: Collection[str]) -> LedgerSource:
        """The same of these files. What is found to be bad is noted here as well."""
        files = [file for file in self.files if file.uri in uris]
        return LedgerSource(self.spark, files, self.bad, self.left_out, self.overlap)

    def rows(
        self,
        stages: Sequence[str] = (),
        *,
        only: Collection[str] | None = None,
        lenient: bool = False,
    ) -> Any:
        """The rows of these stages (default: all), `only` of these files, as a DataFrame."""
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
        """What the job comes to over the files that can be read; the job builds its DataFrames
        anew each time. Raises TooManyBadFiles, and what Spark raises for other reasons.
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

    def _known(self, said: str) -> str | None:
        tails = {one.split(":", 1)[-1].lstrip("/") for one in (said, unquote(said))}
        for file in self.files:
            if file.uri.split(":", 1)[-1].lstrip("/") in tails and file.uri not in self.bad:
                return file.uri
        return None


def spark_schema() -> Any:
    """`parquet_schema` in Spark's types."""
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
