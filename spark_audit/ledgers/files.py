"""List the ledger files of all sites, on any file system, and read the revision documents.

Below LEDGER: SITE/ledger/date=YYYY-MM-DD/STAGE-STATE-FIRST-LAST.parquet and
SITE/ledger/revisions/REVISION.json, as nodes keep them; a copy may leave `ledger/` out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"(packed|linked_out|linked_in|delivered)-([0-9a-f]+)-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class LedgerPath:
    """Ledger file. `stage`, `first` and `last` (inclusive) come from its name, if it is well
    formed.
    """

    site: str
    date: str
    uri: str
    size: int
    stage: str = ""
    first: int = -1
    last: int = -1

    @property
    def name(self) -> str:
        """Site, date and file name, for people."""
        return f"{self.site}/date={self.date}/{self.uri.rsplit('/', 1)[-1]}"


@dataclass(frozen=True, slots=True)
class LedgerListing:
    """Contents of the ledgers' folder."""

    sites: frozenset[str]
    """Sites that have a folder, with or without a ledger."""
    files: tuple[LedgerPath, ...]
    revisions: tuple[tuple[str, dict[str, Any]], ...]
    """(site, document) of every readable revision."""
    unreadable: tuple[str, ...]
    """Revision documents that could not be read."""
    older: frozenset[str] = frozenset()
    """Sites with a deliverer's files that are too old for `files`."""


def list_ledgers(spark: SparkSession, root: str, from_date: str) -> LedgerListing:
    """List `root` (a path or URI of any file system that Spark reads): files of `from_date` and
    later.
    """
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(root)
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    root = root.rstrip("/")

    def found(pattern: str) -> list[Any]:
        return list(system.globStatus(jvm.org.apache.hadoop.fs.Path(f"{root}/{pattern}")) or ())

    sites = frozenset(one.getPath().getName() for one in found("*") if one.isDirectory())
    files, older = [], set()
    for pattern in ("*/ledger/date=*/*.parquet", "*/date=*/*.parquet"):
        for status in found(pattern):
            file = ledger_path(status.getPath().toString(), status.getLen())
            if file.date >= from_date:
                files.append(file)
            elif file.stage in ("", "delivered"):
                older.add(file.site)
    revisions, unreadable = [], []
    for pattern in ("*/ledger/revisions/*.json", "*/revisions/*.json"):
        for status in found(pattern):
            uri = status.getPath().toString()
            site = site_of(uri)
            try:
                revisions.append((site, json.loads(_text(jvm, system, status.getPath()))))
            except ValueError as error:
                unreadable.append(f"{site}/revisions/{uri.rsplit('/', 1)[-1]}: {error}")
    return LedgerListing(
        sites,
        tuple(sorted(files, key=lambda f: f.uri)),
        tuple(revisions),
        tuple(unreadable),
        frozenset(older),
    )


def _text(jvm: Any, system: Any, path: Any) -> str:
    source = system.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(source, "UTF-8"))
    finally:
        source.close()


def site_of(uri: str) -> str:
    parts = uri.split("/")
    return parts[-4] if parts[-3] == "ledger" else parts[-3]


def ledger_path(uri: str, size: int) -> LedgerPath:
    """Parse a file's folder and name."""
    date = uri.split("/")[-2].removeprefix("date=")
    named = _NAME.fullmatch(uri.rsplit("/", 1)[-1])
    if named is None:
        return LedgerPath(site_of(uri), date, uri, size)
    first, last = int(named[3]), int(named[4])
    return LedgerPath(site_of(uri), date, uri, size, named[1], first, last)
