"""A small table of the driver's as a DataFrame, without Python on any executor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def small_table(spark: Any, rows: Iterable[Sequence[Any]], columns: Mapping[str, str]) -> Any:
    """`columns`: name -> `string`, `int`, `long`, `binary` or `strings`, a list of them."""
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
    # Of no rows Spark makes no table: of one that is none, it does.
    table = spark.createDataFrame(pa.Table.from_pylist(named or [{}], schema))
    return table if named else table.where("false")
