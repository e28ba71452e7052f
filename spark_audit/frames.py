"""Tables made on the driver, and intermediate tables cut off from their plans.

On one machine intermediate tables stay in Spark's memory and on its disk. On a cluster such a copy
dies with the executor that holds it, and the job with it, so they are written as files that all
executors reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def small_table(
    spark: SparkSession, rows: Iterable[Sequence[Any]], columns: Mapping[str, str]
) -> DataFrame:
    """Make a DataFrame of the driver's rows, without Python on any executor. `columns`: name ->
    `string`, `int`, `long`, `binary` or `strings` (a list).
    """
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "binary": pa.binary(),
        "strings": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    # Spark makes no table of no rows, so filter a row of nulls.
    table = spark.createDataFrame(pa.Table.from_pylist(named or [{}], schema))
    return table if named else table.where("false")


def no_rows(spark: SparkSession, columns: Any, *more: str) -> DataFrame:
    """Return a table that Spark knows to be empty, so that queries on it cost nothing. `columns`: a
    StructType, or DDL; `more`: expressions.
    """
    from pyspark.sql.types import StructType

    if isinstance(columns, str):
        columns = StructType.fromDDL(columns)
    of_none = [f"CAST(NULL AS {one.dataType.simpleString()}) AS {one.name}" for one in columns]
    return spark.sql(f"SELECT {', '.join([*of_none, *more])} WHERE false")


@dataclass(slots=True)
class Keep:
    """Function that computes a DataFrame once and returns the copy. `folder`: a URI that every
    executor reaches; empty on one machine.
    """

    spark: SparkSession
    folder: str = ""
    _count: int = field(default=0, init=False)

    def __call__(self, table: DataFrame) -> DataFrame:
        if not self.folder:
            return table.localCheckpoint()
        self._count += 1
        uri = f"{self.folder.rstrip('/')}/{self._count:03}"
        table.write.mode("overwrite").parquet(uri)
        return self.spark.read.schema(table.schema).parquet(uri)

    def clear(self) -> None:
        """Delete the files."""
        if not self.folder:
            return
        path = self.spark.sparkContext._jvm.org.apache.hadoop.fs.Path(self.folder)
        path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration()).delete(path, True)
