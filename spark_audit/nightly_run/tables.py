"""Tables that grow by a partition a night: ROOT/TABLE/date=YYYY-MM-DD/part.parquet.

Each partition is one file, always of the same name, so that a repeated audit replaces it and never
adds to it. All tables of a night are written to ROOT/_staged, marked as complete, then put in place
one by one: a run killed before the mark leaves the old night, a run killed after it the new one,
which the next opening puts in place. Only one run at a time: the staged tables of another would be
taken for a killed run's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RENAMES_OVER = ("hdfs", "viewfs")
"""File systems, besides the local one, whose rename replaces a file in one step."""


@dataclass(slots=True)
class TableFiles:
    """File operations by URI or path, as Spark takes them."""

    spark: SparkSession

    def under(self, pattern: str) -> list[str]:
        """Return the sorted matches of a pattern."""
        system, path = self._at(pattern)
        found = system.globStatus(path) or ()
        return sorted(str(one.getPath().toString()) for one in found)

    def exists(self, uri: str) -> bool:
        system, path = self._at(uri)
        return bool(system.exists(path))

    def delete(self, uri: str) -> None:
        """Delete a file or folder, if present."""
        system, path = self._at(uri)
        system.delete(path, True)

    def touch(self, uri: str) -> None:
        system, path = self._at(uri)
        system.create(path, True).close()

    def replace(self, source: str, target: str) -> None:
        """Replace `target`, which stays the old file until it is the whole new one: by a rename
        locally and on HDFS, by a copy on an object store, where an object appears when complete.
        """
        system, path = self._at(target)
        system.mkdirs(path.getParent())
        _, source_path = self._at(source)
        scheme = str(system.getUri().getScheme())
        if scheme == "file":
            # Without Hadoop's checksums, which are separate files: no rename moves both.
            goal = Path(str(path.toUri().getPath()))
            goal.with_name(f".{goal.name}.crc").unlink(missing_ok=True)
            os.replace(str(source_path.toUri().getPath()), goal)
        elif scheme in _RENAMES_OVER:
            self._rename(source_path, path)
        else:
            copied = self._jvm.org.apache.hadoop.fs.FileUtil.copy(
                system, source_path, system, path, False, True, self._conf
            )
            if not copied:
                raise OSError(f"{source} could not be copied to {target}")

    def _rename(self, source: Any, target: Any) -> None:
        fs = self._jvm.org.apache.hadoop.fs
        rename = getattr(fs, "Options$Rename")
        how = self.spark.sparkContext._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        fs.FileContext.getFileContext(target.toUri(), self._conf).rename(source, target, how)

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    @property
    def _conf(self) -> Any:
        return self.spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        system = path.getFileSystem(self._conf)
        return system, system.makeQualified(path)


FINDINGS, COUNTS, PENDING, FILES, NIGHTS = "findings", "counts", "pending", "files", "nights"
TABLES = (FINDINGS, COUNTS, PENDING, FILES, NIGHTS)
"""Tables in the order of their placing: a night found in `nights` has all the others."""
_PART = "part.parquet"
_STAGED = "_staged"
_COMPLETE = "COMPLETE"


class DamagedTables(Exception):
    """A night's tables are not as the night wrote them."""

    def __init__(self, day: str, why: str) -> None:
        super().__init__(f"the tables of {day} {why}")
        self.day = day


@dataclass(slots=True)
class NightTables:
    """Tables of all nights. `root`: a path or URI of any file system that Spark writes to."""

    spark: SparkSession
    root: str
    files: TableFiles = field(init=False)

    def __post_init__(self) -> None:
        self.root = self.root.rstrip("/")
        self.files = TableFiles(self.spark)

    def recover(self) -> None:
        """Finish what a killed run began; call before any reading."""
        for staged in self.files.under(f"{self.root}/{_STAGED}/date=*"):
            if self.files.exists(f"{staged}/{_COMPLETE}"):
                self._put_in_place(staged)
            else:
                self.files.delete(staged)

    def days(self, table: str = NIGHTS) -> list[str]:
        """Return the days that have a partition, in order."""
        found = self.files.under(f"{self.root}/{table}/date=*/{_PART}")
        return [uri.split("/")[-2].removeprefix("date=") for uri in found]

    def read(self, table: str, day: str, schema: str) -> DataFrame:
        """Return a partition with these columns. Raises DamagedTables if the partition is missing;
        its rows are read later.
        """
        uri = self._place(table, day)
        if not self.files.exists(uri):
            raise DamagedTables(day, f"lack {table}/date={day}/{_PART}")
        return self.spark.read.schema(schema).parquet(uri)

    def collect(self, table: str, day: str, schema: str) -> list[Any]:
        """Return the rows of a small partition. Raises DamagedTables."""
        rows = self.read(table, day, schema)
        with _corruption_named(table, day):
            return list(rows.collect())

    def count(self, table: str, day: str, schema: str) -> int:
        """Count the rows by reading every value. Raises DamagedTables."""
        from pyspark.sql import functions as F  # noqa: N812

        rows = self.read(table, day, schema)
        with _corruption_named(table, day):
            counted = rows.agg(F.count("*"), F.bit_xor(F.xxhash64(*rows.columns))).head()
        return int(counted[0])

    def write(self, day: str, tables: Mapping[str, DataFrame]) -> None:
        """Write all tables of a night as one step."""
        staged = f"{self.root}/{_STAGED}/date={day}"
        self.files.delete(staged)
        for name in TABLES:
            tables[name].coalesce(1).write.parquet(f"{staged}/{name}")
        self.files.touch(f"{staged}/{_COMPLETE}")
        self._put_in_place(staged)

    def _put_in_place(self, staged: str) -> None:
        day = staged.rsplit("=", 1)[-1]
        for name in TABLES:
            for part in self.files.under(f"{staged}/{name}/*.parquet"):
                self.files.replace(part, self._place(name, day))
        self.files.delete(staged)

    def _place(self, table: str, day: str) -> str:
        return f"{self.root}/{table}/date={day}/{_PART}"


@contextmanager
def _corruption_named(table: str, day: str) -> Iterator[None]:
    """Raise DamagedTables where Spark cannot decode a file."""
    signs = ("FAILED_READ_FILE", "Encountered error while reading file", "not a Parquet")
    try:
        yield
    except Exception as error:
        if any(sign in str(error) for sign in signs):
            raise DamagedTables(day, f"cannot be read: {table} is corrupt") from error
        raise
