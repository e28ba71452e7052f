"""Intermediate tables that several steps need: worked out once, cut off from where they came from.

On one machine they stay in Spark's own memory and on its disk. On a cluster such a copy dies with
the executor that holds it, and the job with it; so there they are written as files that all
executors reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Keep:
    """Call with a DataFrame. `folder`: a URI that every executor reaches; empty: on one machine."""

    spark: Any
    folder: str = ""
    _count: int = field(default=0, init=False)

    def __call__(self, table: Any) -> Any:
        if not self.folder:
            return table.localCheckpoint()
        self._count += 1
        uri = f"{self.folder.rstrip('/')}/{self._count:03}"
        table.write.mode("overwrite").parquet(uri)
        return self.spark.read.schema(table.schema).parquet(uri)

    def clear(self) -> None:
        """Takes the files away."""
        if not self.folder:
            return
        path = self.spark.sparkContext._jvm.org.apache.hadoop.fs.Path(self.folder)
        path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration()).delete(path, True)
